"""The secret values of a configuration, so that logs can leave them out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr

from antwort.config.masking import is_secret_name

__all__ = ["secret_values"]


def secret_values(value: Any, name: str = "") -> Iterator[str]:
    """Yield every secret in a model or raw settings: by its type or, in raw settings, by its name."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, str):
        if is_secret_name(name):
            yield value
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from secret_values(getattr(value, field), field)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from secret_values(part, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from secret_values(part, name)
