"""What a request says about the tool: whose results, how much of them, and where the user is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from antwort.provider import Context, FunctionError
from antwort.providers.web_search.urls import domain

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
