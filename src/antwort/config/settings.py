"""The base of every section of the configuration and of every provider's settings."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from antwort.config.schema import is_model, secret_fields

__all__ = ["Settings"]


class Settings(BaseModel):
    """Typed settings: unknown keys are errors, values cannot be changed, secrets may come from files.

    For a field `x` of type `SecretStr` the key `x_file` may be given instead: a path, relative to the working folder,
    whose content without the newline at its end becomes the value. A section without content counts as empty.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _read_input(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        values = dict(data)
        for name, field in cls.model_fields.items():
            if values.get(name, ...) is None and is_model(field.annotation):
                values[name] = {}
        for name in secret_fields(cls):
            _read_secret(values, name)
        return values


def _read_secret(values: dict[str, Any], name: str) -> None:
    """Replace `<name>_file` by the content of the file it names."""
    key = f"{name}_file"
    path = values.pop(key, None)
    if path is None:
        return
    if not isinstance(path, str | os.PathLike):
        raise _refused(key, path, "must be the path of a file")
    if values.get(name) is not None:
        raise _refused(key, path, f"give either '{name}' or '{key}' ({path}), not both")
    try:
        secret = Path(path).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise _refused(key, path, f"cannot read {path}: not UTF-8 text") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise _refused(key, path, f"cannot read {path}: {reason}") from None
    if not secret:
        raise _refused(key, path, f"the file {path} is empty")
    values[name] = secret


def _refused(key: str, value: Any, reason: str) -> ValidationError:
    """Build an error that pydantic reports at the key itself, not at the whole section."""
    cause = PydanticCustomError("secret_file", "{reason}", {"reason": reason})
    return ValidationError.from_exception_data("secret", [InitErrorDetails(type=cause, loc=(key,), input=value)])
