"""Files and uploads as the API shows them, and what it takes."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from msgspec import Struct
from pydantic import ConfigDict, ValidationError

from antwort.provider import BadRequestError, BaseModel, Field, FileRecord

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
UploadStatus = Literal["pending", "completed", "cancelled", "expired"]
Seconds = Annotated[int, Field(ge=3600, le=2_592_000, description="Seconds until it expires: an hour to 30 days.")]


class _FileBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ExpiresAfter(BaseModel):
    """When a file expires."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    anchor: Literal["created_at"] = "created_at"
    seconds: Seconds


class FileForm(BaseModel):
    """What a form says beside the file."""

    model_config = ConfigDict(defer_build=True)

    purpose: Purpose
    expires_after: ExpiresAfter | None = None


class FileObject(Struct, kw_only=True):
    """A file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    status_details: str | None = None

    @classmethod
    def of(cls, file: FileRecord) -> Self:
        """Return a file as it is shown."""
        return cls(
            id=file.id,
            bytes=file.bytes,
            created_at=file.created_at,
            expires_at=file.expires_at,
            filename=file.filename,
            purpose=file.purpose,
        )


class FileList(Struct, kw_only=True):
    """A part of the list of files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(Struct, kw_only=True):
    """What is left of a deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class CreateUpload(_FileBody):
    """A file that is to come in parts."""

    filename: str = Field(min_length=1, max_length=1000, description="The name of the file.")
    purpose: Purpose = Field(description="What the file is for.")
    bytes: int = Field(ge=1, le=2**53, description="How many bytes the file has.")
    mime_type: str = Field(max_length=255, description="The media type; the name tells it, too.")
    expires_after: ExpiresAfter | None = Field(default=None, description="When the file expires, once it is complete.")


class CompleteUpload(_FileBody):
    """The end of an upload."""

    part_ids: list[str] = Field(min_length=1, max_length=10_000, description="The parts, in their order.")
    md5: str | None = Field(default=None, description="The MD5 of the file in hexadecimal digits, to be checked.")


class UploadObject(Struct, kw_only=True):
    """A file that comes in parts."""

    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: UploadStatus
    file: FileObject | None = None


class UploadPart(Struct, kw_only=True):
    """A part of a file."""

    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: str


def read_form(fields: Mapping[str, str]) -> FileForm:
    """Return what the fields of a form say; BadRequestError, with the field's name, if they do not fit."""
    given: dict[str, object] = {name: fields[name] for name in ("purpose",) if name in fields}
    expires = {
        key: fields[f"expires_after[{key}]"] for key in ("anchor", "seconds") if f"expires_after[{key}]" in fields
    }
    if expires or fields.get("expires_after"):
        given["expires_after"] = expires or _read_json(fields["expires_after"])
    try:
        return FileForm.model_validate(given)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        param = ".".join(str(part) for part in first["loc"])
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        raise BadRequestError(f"'{param}': {first['msg']}.", param=param, code=code) from None


def _read_json(text: str) -> object:
    """Return what a field says as JSON, as some clients write objects in forms, or the text if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


FILE = FileObject(
    id="file-065a1c3fd6b2a1d2", bytes=120_000, created_at=1_700_000_000, filename="handbook.pdf", purpose="user_data"
)
BEGUN = UploadObject(
    id="upload_5f9c1d2b3a4e",
    bytes=FILE.bytes,
    created_at=FILE.created_at,
    expires_at=FILE.created_at + 3600,
    filename=FILE.filename,
    purpose=FILE.purpose,
    status="pending",
)
"""A file and an upload, for examples."""

FILE_FORM = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "The file."},
        "purpose": {"enum": list(get_args(Purpose)), "description": "What the file is for."},
        "expires_after[anchor]": {"enum": ["created_at"], "description": "What the seconds are counted from."},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": 3600,
            "maximum": 2_592_000,
            "description": "Seconds until the file expires: an hour to 30 days.",
        },
    },
    "required": ["file", "purpose"],
}
PART_FORM = {
    "type": "object",
    "properties": {"data": {"type": "string", "format": "binary", "description": "The part."}},
    "required": ["data"],
}
