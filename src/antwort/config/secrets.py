"""What must not be shown: secrets known by the name they are kept under, and passwords inside URLs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr

from antwort.config.settings import Extension
from antwort.lazy_imports import compiled_on_use

MASK = "********"

_WORD = compiled_on_use(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset({"key", "pass", "pwd", "passwd", "cookie", "bearer"})
_SECRET_ENDINGS = ("apikey", "password", "passphrase", "secret", "token", "authorization", "credential", "credentials")
_PLURALS = frozenset({"keys", "secrets", "tokens", "passwords", "cookies"})

# After `//`, or where a word begins: a URL may lack its scheme by mistake, and has its password all the same. A number
# right after the colon is a port, and `[` opens an IPv6 address: neither starts a password.
_USERINFO = compiled_on_use(r"((?://|(?<![^\s'\"]))[^:/?#\s@\['\"]*:)(?!//|\d+(?:[/?#]|$))\S+@")
_QUERY = compiled_on_use(r"([?&;]([\w.-]+)=)([^&;#\s]+)")


def is_secret_name(name: str) -> bool:
    """Tell whether a value under this name is a secret: `api_key` and `X-Auth-Token` are, `max_tokens` is not."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-2:] == ["public", "key"]:
        return False
    return words[-1] in _SECRET_WORDS or words[-1].endswith(_SECRET_ENDINGS)


def is_secret_collection(name: str) -> bool:
    """Tell whether a list or mapping under this name holds secrets: `tokens: [...]`."""
    words = _WORD.findall(name)
    return is_secret_name(name) or (bool(words) and words[-1].lower() in _PLURALS)


def is_header_map(name: str, value: object) -> bool:
    """Tell whether a mapping has the headers of requests: any of them may be a credential, whatever it is called."""
    return isinstance(value, dict) and name.lower().endswith("headers")


def mask_urls(text: str) -> str:
    """Mask the passwords and secret query parameters of the URLs in a text."""
    text = _USERINFO.sub(rf"\1{MASK}@", text)
    return _QUERY.sub(lambda match: match[1] + (MASK if is_secret_name(match[2]) else match[3]), text)


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
    elif isinstance(value, Extension):
        yield from secret_values(value.given)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from secret_values(part, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from secret_values(part, name)
