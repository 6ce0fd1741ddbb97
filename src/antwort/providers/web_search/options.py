"""What a request says about the tool: whose results, how much of them, and where the user is."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from antwort.provider import Context, FunctionError

_DOMAIN = re.compile(r"(?=.{1,253}$)[\w-]{1,63}(?:\.[\w-]{1,63})*")
_TRACKING = re.compile(r"utm_\w+|gclid|fbclid|msclkid|dclid|yclid|igshid|mc_[ce]id", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNQUOTED = "%/:=&?~#+!$,;'@()*[]"


def normalised(url: str) -> str | None:
    """Return a web address in its one spelling: without fragment, tracking and default port; None if it is none."""
    url = url.strip()
    if _CONTROL.search(url):  # urlsplit would just drop some of these
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not host or parts.username is not None or re.search(r"[\s<>\"\\]", host):
        return None
    netloc = f"[{host}]" if ":" in host else host.rstrip(".")
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        netloc = f"{netloc}:{port}"
    query = parts.query
    if _TRACKING.search(query):
        query = urlencode([pair for pair in parse_qsl(query, True) if not _TRACKING.fullmatch(pair[0])])
    return urlunsplit((scheme, netloc, quote(parts.path or "/", _UNQUOTED), quote(query, _UNQUOTED), ""))


def domain(text: str) -> str | None:
    """Return a domain in lower case; None if the text is none."""
    name = text.strip().lower().removeprefix("*.").strip(".")
    return name if _DOMAIN.fullmatch(name) else None


def within(host: str, domains: Iterable[str]) -> bool:
    """Tell whether a host is one of some domains, or below one."""
    host = host.lower().rstrip(".")
    return any(host == name or host.endswith(f".{name}") for name in domains)


Size = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The tool as a request names it; a wish that cannot be read is a FunctionError, never dropped."""

    allowed_domains: tuple[str, ...] = ()
    """Empty for all."""
    size: Size = "medium"
    live: bool = True
    """False if nothing may be fetched."""
    city: str = ""
    region: str = ""
    country: str = ""
    timezone: str = ""

    @classmethod
    def of(cls, ctx: Context) -> "SearchOptions":
        """Read the options of a call."""
        return cls.read(ctx.options)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> "SearchOptions":
        """Read the options of a tool."""
        size = options.get("search_context_size")
        if size not in (None, "low", "medium", "high"):  # no set: what was sent may not be hashable
            raise FunctionError("search_context_size must be low, medium or high.")
        live = options.get("external_web_access")
        if not (live is None or isinstance(live, bool)):
            raise FunctionError("external_web_access must be true or false.")
        location = _mapping(options, "user_location")
        return cls(
            _domains(_mapping(options, "filters").get("allowed_domains")),
            cast("Size", size or "medium"),
            live is not False,
            _text(location, "city"),
            _text(location, "region"),
            _text(location, "country").upper(),
            _text(location, "timezone"),
        )

    @property
    def location(self) -> str:
        """Where the user is, in words; empty if nobody said."""
        return ", ".join(part for part in (self.city, self.region, self.country) if part)

    def locale(self, language: str | None) -> str | None:
        """Return a language with the user's country, if it has no country yet."""
        if language is None or "-" in language or len(self.country) != 2:
            return language
        return f"{language}-{self.country}"


def _mapping(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = options.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FunctionError(f"{name} must be an object.")
    return value


def _domains(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    names = value if isinstance(value, list) else [None]
    found = [domain(name) if isinstance(name, str) else None for name in names]
    if None in found:
        raise FunctionError("filters.allowed_domains must be a list of domains, such as example.org.")
    return tuple(name for name in found if name is not None)


def _text(location: Mapping[str, Any], name: str) -> str:
    value = location.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FunctionError(f"user_location.{name} must be a text.")
    return " ".join(value.split())[:100]
