"""What requests say: the fields of a search and of a new row, from JSON or a form, checked."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddh._core.errors import InputError
from ddh.index import Row
from ddh.index.rows import check_codes, check_text

Model = TypeVar("Model", bound=BaseModel)
Where = dict[str, str | bool | int | float]


class Asked(BaseModel):
    """What every search may say, whatever it searches by."""

    model_config = ConfigDict(extra="forbid", strict=True)

    k: int = Field(50, ge=1, description="Answers wanted.")
    offset: int = Field(0, ge=0, description="Answers to pass over: the page before.")
    radius: int | None = Field(None, ge=0, description="Most bits that differ; null for any.")
    where: Where | None = Field(None, description="Metadata values that must be equal.")
    folder: str | None = Field(None, description="Only pictures below this folder; empty for all.")


class Question(Asked):
    """A search by a code or by the key of a row."""

    code: str | None = Field(None, description="Lower-case hexadecimal digits of the packed code.")
    key: str | None = Field(None, description="The key of a row, to search by its code.")


class NewFields(BaseModel):
    """What may come with a picture that is added."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str | None = Field(None, description="Its key; the name of its file where left out.")
    metadata: dict[str, Any] | None = Field(None, description="Anything that JSON can hold.")


class NewRow(NewFields):
    """A row to add."""

    key: str
    code: str = Field(description="Lower-case hexadecimal digits of the packed code.")
    path: str | None = Field(None, description="Its picture, below the collection's folder.")


def read_new_row(body: bytes, bits: int) -> Row:
    """The body of a JSON request that adds a row."""
    new = _validated(NewRow.model_validate_json, body)
    key = check_text(new.key, "a key")
    path = None if new.path is None else check_text(new.path, "a path")
    return Row(key, parse_code(new.code, bits), path, None, new.metadata or {})


def read_new_fields(fields: dict[str, str]) -> NewFields:
    """The text fields beside a picture that is added; an empty one counts as left out."""
    given: dict[str, Any] = {name: text for name, text in fields.items() if text}
    if "metadata" in given:
        given["metadata"] = parse_json(given["metadata"], "metadata")
    new = _validated(NewFields.model_validate, given)
    if new.key is not None:
        check_text(new.key, "a key")
    return new


def _validated(validate: Callable[[Any], Model], given: Any) -> Model:
    try:
        return validate(given)
    except ValidationError as error:
        raise InputError(plain_text(error.errors(include_url=False))) from error


def read_json(body: bytes) -> Question:
    """The body of a JSON request."""
    question = _validated(Question.model_validate_json, body)
    if (question.code is None) == (question.key is None):
        raise InputError("give either code or key, the one that is searched by")
    return question


def read_fields(fields: dict[str, str]) -> Asked:
    """The text fields of a form; an empty one counts as left out."""
    given: dict[str, Any] = {name: text for name, text in fields.items() if text}
    for name in given.keys() & {"k", "offset", "radius", "where"}:
        given[name] = parse_json(given[name], name)
    return _validated(Asked.model_validate, given)


def parse_json(text: str, what: str) -> Any:
    """A value that a form or an address gives as JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not valid JSON: {str(error)[:200]}") from error


def parse_where(text: str | None) -> Where | None:
    """Metadata filters from an address: a JSON object of names and values."""
    if not text:
        return None
    where = parse_json(text, "where")
    if not isinstance(where, dict):
        raise InputError('where is a JSON object such as {"label": "cat"}')
    return where


def parse_code(text: str, bits: int) -> NDArray[np.uint8]:
    """A code from hexadecimal digits."""
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        packed = b""
    width = -(-bits // 8)
    if len(packed) != width or len(text) != 2 * width:
        raise InputError(
            f"a code of {bits} bits is written as {2 * width} hexadecimal digits, not {text[:64]!r}"
        )
    return check_codes(np.frombuffer(packed, np.uint8), bits, "the code")[0]


def plain_text(problems: Any) -> str:
    """What a validation found wrong, in one line."""
    parts = []
    for problem in list(problems)[:5]:
        place = ".".join(str(step) for step in problem["loc"] if step != "body")
        parts.append(f"{place}: {problem['msg']}" if place else str(problem["msg"]))
    return "; ".join(parts)
