"""A model server without a script: what it says follows from what it is asked."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.clients.stage import MODELS
from typing_extensions import override

from antwort.backends import ModelRequest
from antwort.testing import ScriptServer, Turn, call, turn
from antwort.testing.script import Script

__all__ = ["improvising"]


def improvising() -> ScriptServer:
    """Return a model server that answers whatever it is asked.

    Asked by a user, it calls the function it must call or the first one it has, with arguments it finds in the
    question. Otherwise it fills the schema it is given, or says something.
    """
    server = ScriptServer([], models=MODELS)
    server.script = _Improvisation()
    return server


class _Improvisation(Script):
    def __init__(self) -> None:
        super().__init__([])

    @override
    def take(self, request: ModelRequest) -> tuple[int, Turn]:
        self.requests.append(request)
        return len(self.requests), _answer(request)


def _answer(request: ModelRequest) -> Turn:
    last = request.items[-1]
    question = _text(last.get("content"))
    if request.tools and last.get("role") == "user" and request.tool_choice != "none":
        tool = _chosen(request)
        return turn(calls=[call(tool["name"], _filled(tool.get("parameters") or {}, question))])
    form: Mapping[str, Any] = request.text_format or {}
    if form.get("type") == "json_schema":
        return turn(json.dumps(_filled(form["json_schema"]["schema"], question)))
    if form.get("type") == "json_object":  # the question says which keys
        keys = re.findall(r"'(\w+)'", question)
        return turn(json.dumps(dict.fromkeys(keys, "Because it was a cat.")))
    return turn(["Hello", " there", "."], reasoning=["Be ", "polite."])


def _chosen(request: ModelRequest) -> Mapping[str, Any]:
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        return next(tool for tool in request.tools if tool["name"] == choice["name"])
    return request.tools[0]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""


def _filled(schema: Mapping[str, Any], question: str) -> Any:
    """Return a value that fits a schema, made of what the question says where it can be."""
    if "anyOf" in schema:
        return _filled(schema["anyOf"][0], question)
    match schema.get("type"):
        case "object":
            return {name: _filled(inner, question) for name, inner in schema.get("properties", {}).items()}
        case "integer":
            return next(map(int, re.findall(r"\d+", question)), 1)
        case "array":
            return []
        case _:
            return next(iter(re.findall(r"'([^']+)'", question)), "Something about cats")
