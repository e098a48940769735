"""Request bodies: JSON, or a multipart form with one picture; and the values inside them."""

import json
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ddh._core.errors import InputError
from ddh.codes.inputs import check_codes
from ddh.serve.errors import validation_message

MAX_FORM_FIELDS = 16
MAX_FIELD_BYTES = 64 << 10
MAX_WHERE_NAMES = 100

Where = Annotated[dict[str, str | bool | int | float], Field(max_length=MAX_WHERE_NAMES)]
CodeText = Annotated[str, Field(description="Lower-case hexadecimal digits of the packed code.")]
WHERE = TypeAdapter(Where, config=ConfigDict(strict=True))


class Fields(BaseModel):
    """A body whose fields are all known and have exactly the declared types."""

    model_config = ConfigDict(extra="forbid", strict=True)


JsonModel = TypeVar("JsonModel", bound=Fields)
FormModel = TypeVar("FormModel", bound=Fields)


async def read_body(
    request: Request, json_model: type[JsonModel], form_model: type[FormModel]
) -> tuple[JsonModel, None] | tuple[FormModel, bytes]:
    """The validated fields of a request, and the picture where they come in a form."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if content_type == "application/json":
            return json_model.model_validate_json(await request.body()), None
        if content_type == "multipart/form-data":
            image, texts = await _read_form(request)
            return form_model.model_validate(_parse_texts(texts, form_model)), image
    except ValidationError as error:
        raise InputError(validation_message(error.errors(include_url=False))) from error
    raise HTTPException(
        415, "send application/json, or multipart/form-data with a file in the field image"
    )


async def _read_form(request: Request) -> tuple[bytes, dict[str, str]]:
    """The file `image` and the text fields of a form; other files are refused."""
    async with request.form(
        max_files=1, max_fields=MAX_FORM_FIELDS, max_part_size=MAX_FIELD_BYTES
    ) as form:
        image: bytes | None = None
        texts: dict[str, str] = {}
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                texts[name] = value
            elif name == "image":
                image = await value.read()
            else:
                raise InputError(f"the picture belongs in the field image, not in {name[:60]!r}")
        if image is None:
            raise InputError("the form has no file in the field image")
        return image, texts


def _parse_texts(texts: dict[str, str], model: type[Fields]) -> dict[str, Any]:
    """Form fields as values: JSON unless the field is text; an empty one counts as left out."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        field = model.model_fields.get(name)
        is_text = field is None or field.annotation in (str, str | None)
        try:
            if text:
                values[name] = text if is_text else json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is not valid JSON: {str(error)[:200]}") from error
    return values


def parse_where(text: str) -> dict[str, str | bool | int | float] | None:
    """Metadata filters from a query string: a JSON object of names and values."""
    if not text:
        return None
    try:
        return WHERE.validate_json(text)
    except ValidationError as error:
        message = validation_message(error.errors(include_url=False))
        raise InputError(f'where is a JSON object such as {{"label": "cat"}}: {message}') from error


def parse_code(text: str, bits: int) -> NDArray[np.uint8]:
    """A packed code from hexadecimal digits."""
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        packed = b""
    width = -(-bits // 8)
    if len(packed) != width or len(text) != 2 * width:
        raise InputError(
            f"a code of {bits} bits is written as {2 * width} hexadecimal digits, not {text[:64]!r}"
        )
    code: NDArray[np.uint8] = check_codes(np.frombuffer(packed, np.uint8), bits, "the code")[0]
    return code


def body_schema(json_model: type[Fields], form_model: type[Fields]) -> dict[str, Any]:
    """The two kinds of body that `read_body` takes, for the OpenAPI description."""
    texts = {
        name: {"type": "string", "description": field["description"]}
        for name, field in form_model.model_json_schema()["properties"].items()
    }
    image = {"type": "string", "format": "binary", "description": "An image file."}
    form = {"type": "object", "required": ["image"], "properties": {"image": image, **texts}}
    content = {
        "application/json": {"schema": json_model.model_json_schema()},
        "multipart/form-data": {"schema": form},
    }
    return {"requestBody": {"required": True, "content": content}}
