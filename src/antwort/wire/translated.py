"""Requests of other APIs that mean a response: what each part of that is called where it came from."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from antwort.errors import APIError
from antwort.lazy_imports import compiled_on_use
from antwort.wire.requests import CreateResponse

_STEP = compiled_on_use(r"input\[(\d+)\](?:\.(?:content|output)\[(\d+)\])?")
NO_TOOLS: Mapping[str, str] = MappingProxyType({})


class SentPlace(Struct):
    """Where in a request an item came from, and its parts."""

    where: str
    parts: list[str] = []


class Words(Struct, frozen=True):
    """What an API calls the fields of a response."""

    names: Mapping[str, str]
    within: tuple[str, str]
    """What such a name is like in its middle, as a regular expression, and what is put there."""
    sealed: tuple[str, str] | None = None
    """What thoughts are sealed in, as an error says it, and how it is called in that API."""


class Reading(Struct):
    """A request for a response that means the same, and where the parts of that came from."""

    create: CreateResponse
    places: Sequence[SentPlace]
    words: Words
    hosted: Mapping[str, str] = field(default_factory=lambda: NO_TOOLS)
    """The tools that the server executes, by their types, as they are named."""

    def told(self, error: APIError) -> APIError:
        """Return an error of the response as one of the request: it names the field that was sent."""
        param = error.param
        if param is None:
            return error
        named = self._named(param)
        if error.code == "invalid_encrypted_content" and self.words.sealed is not None:
            error.message = error.message.replace(*self.words.sealed)
        error.message = error.message.replace(param, named) if param in error.message else f"{named}: {error.message}"
        error.param = named
        return error

    def _named(self, param: str) -> str:
        found = _STEP.match(param)
        if found and int(found[1]) < len(self.places):
            place = self.places[int(found[1])]
            part = -1 if found[2] is None else int(found[2])
            return place.parts[part] if 0 <= part < len(place.parts) else place.where
        if param.startswith("input"):
            return "messages"
        for ours, theirs in self.words.names.items():
            if param == ours or param.startswith(f"{ours}."):
                return theirs
        return re.sub(*self.words.within, param)
