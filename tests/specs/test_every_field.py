"""Whatever the official SDK can send takes effect, is refused, or stands in the docs with the reason why not."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import msgspec
import pytest
from tests.specs.sdk_fields import (
    CALLS,
    CREATE,
    HOSTED,
    ITEM_TYPES,
    ITEMS,
    LEFT_OUT,
    OUTPUTS,
    PARAMETERS,
    TOOL_TYPES,
    TOOLS,
    Fields,
    fields_of,
    kind_of,
)

from antwort import Antwort
from antwort.backends import ModelRequest
from antwort.backends.chat.request import ChatDialect, chat_body
from antwort.config import Config
from antwort.errors import BadRequestError
from antwort.testing import RunningApp, ScriptedBackend, running
from antwort.wire.requests import IGNORED, CreateResponse, Options

PAGE = Path(__file__).parents[2] / "docs" / "responses.md"
PROVIDERS: dict[str, Any] = {
    "code_interpreter": {"enabled": True},
    "file_search": {"enabled": True},
    "files": {"enabled": True},
    "programs": {"enabled": True},
    "web_search": {"enabled": True, "settings": {"url": "http://127.0.0.1:9"}},
}
OWN: Any = [{"type": "function", "name": "own", "parameters": {"type": "object", "properties": {}}}]


_OF_EACH = {"id", "created_at", "completed_at", "output"}
"""What each response has of its own."""


def _said(request: ModelRequest) -> bytes:
    return msgspec.json.encode(chat_body(request, ChatDialect(), "test", {}))


class Asked:
    """A server, and what its model was asked last."""

    def __init__(self, server: RunningApp, model: ScriptedBackend) -> None:
        self._server = server
        self._model = model

    def told(self, **fields: Any) -> Any:
        """Send a request; return what a model server is told, or the error."""
        body = {"model": "scripted", "tools": OWN, "store": False, **fields}
        count = len(self._model.requests)
        answer = httpx.post(f"{self._server.url}/v1/responses", json=body, timeout=60)
        if answer.status_code != 200:
            assert answer.status_code in {400, 404}, answer.text
            return f"refused: {answer.json()['error']['param']}"
        made = self._model.requests[count:]
        try:
            return [_said(one) for one in made]
        except BadRequestError as error:  # the model server cannot be told of it
            return f"refused: {error.param}"

    def answered(self, fields: Any) -> Any:
        """Send a request; return what a model server is told, and what is answered besides what repeats the request."""
        count = len(self._model.requests)
        answer = httpx.post(f"{self._server.url}/v1/responses", json=fields, timeout=60)
        made = [_said(one) for one in self._model.requests[count:]]
        if not answer.headers["content-type"].startswith("application/json") or answer.status_code != 200:
            return made, answer.headers["content-type"], answer.status_code
        return made, {field: value for field, value in answer.json().items() if field not in _OF_EACH}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    model = ScriptedBackend(["Hi."] * 2000)
    config = Config(data_dir=tmp_path_factory.mktemp("fields"), providers=PROVIDERS)
    with running(Antwort(config, backend=model)) as server:
        yield Asked(server, model)


def chosen(fields: Fields, changed: str | None = None) -> dict[str, Any]:
    """Return an object with the usual values of its fields, but for one."""
    values = {field: other if field == changed else usual for field, (usual, other) in fields.items()}
    return {field: value for field, value in values.items() if value is not LEFT_OUT}


def history(name: str, changed: str | None = None) -> list[Any]:
    """Return an input with an item of a type, of which one field may have its other value."""
    item = {"type": kind_of(ITEM_TYPES[name]), **chosen(ITEMS[name], changed)}
    before = [{**CALLS[name]}] if name in CALLS else []
    call_id = item.get("call_id", "call_1")
    after = [{**OUTPUTS[name], "call_id": call_id}] if name in OUTPUTS else []
    if name == "ResponseReasoningItemParam":  # thoughts belong to the calls that they led to
        after = [CALLS["FunctionCallOutput"], {"type": "function_call_output", "call_id": "call_1", "output": "one"}]
    if name == "CompactionTrigger":
        return [{"role": "user", "content": "Go."}, item]
    return [{"role": "user", "content": "Before."}, *before, item, *after, {"role": "user", "content": "Go."}]


def documented(heading: str) -> dict[str, set[str]]:
    """Return the fields that a section of the page says have no effect, by the type of the item or tool."""
    section = PAGE.read_text(encoding="utf-8").partition(f"### {heading}")[2].partition("\n#")[0]
    found: dict[str, set[str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            kinds, fields, reason = (cell.strip() for cell in line.strip("| ").split(" | "))
            assert len(reason) > 10
            for kind in re.findall(r"`(\w+)`", kinds):
                found.setdefault(kind, set()).update(re.findall(r"`(\w+)`", fields) or {"*"})
    return found


def test_each_field_of_each_item_is_tried() -> None:
    assert {name: set(fields) for name, fields in ITEMS.items()} == {
        name: fields_of(kind) for name, kind in ITEM_TYPES.items()
    }


@pytest.mark.parametrize("name", ITEMS)
def test_a_field_of_an_item_has_an_effect_or_is_refused_or_documented(asked: Asked, name: str) -> None:
    kind = kind_of(ITEM_TYPES[name])
    usual = asked.told(input=history(name))
    without = set()
    for field, values in ITEMS[name].items():
        if values[0] != values[1] and usual == asked.told(input=history(name, field)) and field != "id":
            without.add(field)
    if isinstance(usual, str):
        without = set()  # all of it is refused
    known = documented("Fields of items without effect").get(kind, set())
    assert without == known & set(ITEMS[name])


def test_each_field_of_each_tool_and_each_parameter_is_tried() -> None:
    tried = {kind: set(fields) for kind, fields in TOOLS.items()}
    assert tried == {kind: fields_of(tool) for kind, tool in TOOL_TYPES.items() if kind not in HOSTED}
    assert TOOL_TYPES.keys() - TOOLS.keys() == HOSTED
    assert CREATE.keys() == PARAMETERS


@pytest.mark.parametrize("kind", TOOLS)
def test_a_field_of_a_tool_has_an_effect_or_is_refused_or_documented(asked: Asked, kind: str) -> None:
    def told(changed: str | None = None) -> Any:
        tools = [{"type": kind, **chosen(TOOLS[kind], changed)}, {"type": "programmatic_tool_calling"}]
        return asked.told(input="Hi", tools=tools)

    usual = told()
    assert usual != asked.told(input="Hi", tools=[{"type": "programmatic_tool_calling"}])
    without = {field for field in TOOLS[kind] if told(field) == usual}
    assert without == documented("Fields of tools without effect").get(kind, set())


@pytest.mark.parametrize("name", CREATE)
def test_a_parameter_has_an_effect_or_is_refused_or_said_to_be_ignored(asked: Asked, name: str) -> None:
    is_ignored = _is_ignored(get_type_hints(CreateResponse, include_extras=True)[name])
    usual, changed = asked.answered(chosen(CREATE)), asked.answered(chosen(CREATE, name))
    if is_ignored:  # it may be repeated
        changed[1].pop(name, None)
        usual[1].pop(name, None)
    assert (usual == changed) == is_ignored


def _is_ignored(hint: Any) -> bool:
    """Tell whether the reference says of a field that it is ignored, or of all fields that it has."""
    if IGNORED in getattr(hint, "__metadata__", ()):
        return True
    kinds = [kind for part in (hint, *get_args(hint)) for kind in (part, *get_args(part))]
    options = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Options)]
    return bool(options) and all(map(_is_ignored, get_type_hints(options[0], include_extras=True).values()))
