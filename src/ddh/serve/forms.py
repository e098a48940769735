"""Pictures that come in a form: one file `image`, and a few short text fields."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.requests import Request

from ddh._core.errors import InputError

KINDS = "send application/json, or multipart/form-data with a file in the field image"
MOST_FIELDS = 16
MOST_FIELD_BYTES = 64 << 10


@dataclass(frozen=True)
class Form:
    """A picture file and the text fields beside it."""

    image: bytes
    fields: dict[str, str]


async def read_form(request: Request) -> Form:
    """The form of a request; anything but one `image` and text fields is refused."""
    async with request.form(
        max_files=1, max_fields=MOST_FIELDS, max_part_size=MOST_FIELD_BYTES
    ) as form:
        image: bytes | None = None
        fields: dict[str, str] = {}
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name != "image":
                    raise InputError(f"the picture comes in the field image, not in {name[:60]!r}")
                image = await value.read()
            else:
                fields[name] = value
        if image is None:
            raise InputError("the form has no file in the field image")
        return Form(image, fields)


def is_form(content_type: str) -> bool:
    """Whether a body is a form with files."""
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def is_json(content_type: str) -> bool:
    """Whether a body is JSON."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


def form_schema(fields: type[BaseModel]) -> dict[str, Any]:
    """A form with a picture and text fields, for the OpenAPI description."""
    told = fields.model_json_schema()["properties"]
    texts = {
        name: {"type": "string", "description": field["description"]}
        for name, field in told.items()
    }
    image = {"type": "string", "format": "binary", "description": "A picture file."}
    return {"type": "object", "required": ["image"], "properties": {"image": image, **texts}}
