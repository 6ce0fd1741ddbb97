"""What clients of the protocol can read of what providers keep, and the prompts that have agents work."""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from antwort.context import Context
from antwort.errors import BadRequestError, NotFoundError
from antwort.functions import Provider
from antwort.functions.registration import Registration
from antwort.functions.resources import Resource, ResourceSource
from antwort.server.mcp.messages import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from antwort.types import JSON

_PAGE = 100
_MOST_READ = 8 * 1024**2
"""Bytes, or characters of a text, that are read at once."""
_LONGEST_URI = 1000
_LONGEST_CURSOR = 500


class ReadableResources:
    """The resources of all providers that run."""

    def __init__(self, registrations: Callable[[], Iterable[Registration]]) -> None:
        self._registrations = registrations

    async def page(self, ctx: Context, cursor: object) -> JSON:
        """Return a page of the list; RpcError if there is none such."""
        sources = self._sources(ctx)
        number, after = _place(cursor, len(sources))
        shown: list[Resource] = []
        while number < len(sources) and len(shown) < _PAGE:
            try:
                found, after = await sources[number].page(ctx, after, _PAGE - len(shown))
            except NotFoundError:
                raise _no_such_cursor() from None
            shown += found
            if after is not None:
                break
            number += 1
        page: JSON = {"resources": [_described(one, "uri") for one in shown]}
        if number < len(sources):
            page["nextCursor"] = f"{number}:{after or ''}"
        return page

    def templates(self, ctx: Context) -> JSON:
        """Return how the URIs look."""
        return {"resourceTemplates": [_described(source.template, "uriTemplate") for source in self._sources(ctx)]}

    async def read(self, ctx: Context, uri: Any, *, is_stateless: bool) -> JSON:
        """Return what a resource says; RpcError if there is none such."""
        if not isinstance(uri, str) or not uri:
            raise RpcError(INVALID_PARAMS, "'uri' is that of a resource.")
        code = INVALID_PARAMS if is_stateless else RESOURCE_NOT_FOUND
        unknown = RpcError(code, "There is no such resource.", {"uri": uri[:_LONGEST_URI]})
        for source in self._sources(ctx):
            if len(uri) <= _LONGEST_URI and uri.startswith(source.template.uri.partition("{")[0]):
                try:
                    content = await source.read(ctx, uri, _MOST_READ)
                except (NotFoundError, BadRequestError):
                    raise unknown from None
                return {"contents": [{"uri": uri, "mimeType": content.media_type, **_part(content.data)}]}
        raise unknown

    def _sources(self, ctx: Context) -> Sequence[ResourceSource]:
        return [
            source
            for known in self._registrations()
            if known.in_service and isinstance(known.provider, Provider) and known.started
            for source in known.provider.resources
            if ctx.grants(source.scope)
        ]


def _place(cursor: object, count: int) -> tuple[int, str | None]:
    """Return where a list goes on: which source, and where in it."""
    if cursor is None:
        return 0, None
    text = cursor if isinstance(cursor, str) and len(cursor) <= _LONGEST_CURSOR else ""
    number, colon, after = text.partition(":")
    if not colon or not number.isascii() or not number.isdecimal() or len(number) > 3 or int(number) >= count:
        raise _no_such_cursor()
    return int(number), after or None


def _no_such_cursor() -> RpcError:
    return RpcError(INVALID_PARAMS, "The 'cursor' is none of this list, or of one that has changed.")


def _part(data: str | bytes) -> JSON:
    return {"text": data} if isinstance(data, str) else {"blob": base64.b64encode(data).decode()}


def _described(resource: Resource, key: str) -> JSON:
    told: JSON = {key: resource.uri, "name": resource.name, "mimeType": resource.media_type}
    if resource.description:
        told["description"] = resource.description
    return told if resource.size is None else {**told, "size": resource.size}


class AgentPrompts:
    """A prompt for each agent of the configuration: it has that agent work, by the tool that makes responses."""

    def __init__(self, agents: Callable[[], dict[str, str]], tool: str) -> None:
        self._agents = agents
        self._tool = tool

    def page(self) -> JSON:
        """Return the list."""
        arguments = [{"name": "input", "description": "What it is to do, or the question.", "required": True}]
        return {
            "prompts": [
                {"name": name, "description": about or f"Have the agent {name} work.", "arguments": arguments}
                for name, about in self._agents().items()
            ]
        }

    def get(self, name: Any, arguments: Any) -> JSON:
        """Return one, filled; RpcError if there is none such."""
        agents = self._agents()
        if not isinstance(name, str) or name not in agents:
            raise RpcError(INVALID_PARAMS, "There is no such prompt.")
        wanted = arguments.get("input") if isinstance(arguments, dict) else None
        if not isinstance(wanted, str):
            raise RpcError(INVALID_PARAMS, "It needs the argument 'input', a text.")
        text = f"Call the tool `{self._tool}` with the agent `{name}`, and this as its input:\n\n{wanted}"
        return {
            "description": agents[name] or f"Have the agent {name} work.",
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        }
