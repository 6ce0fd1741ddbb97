"""The conformance suites of the protocol: what of them does not pass is listed in the docs, with the reason."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.node_scripts import FOLDER, NODE
from tests.providers.mcp.stage import PIXEL

from antwort import Antwort
from antwort.config import Config
from antwort.functions import FunctionSpec
from antwort.provider import Context, FunctionError, Image, Progress, function
from antwort.testing import ScriptedBackend, running
from antwort.types import JSON

PAGE = Path(__file__).parents[3] / "docs" / "mcp-server.md"
SUITES = {
    "2025-06-18": ("conformance-2025", ["--spec-version", "2025-06-18"]),
    "2025-11-25": ("conformance-2025", ["--spec-version", "2025-11-25"]),
    "2025-11-25, newer": ("@modelcontextprotocol/conformance", ["--requirements", "2025-11-25"]),
    "2026-07-28": ("@modelcontextprotocol/conformance", ["--requirements", "2026-07-28"]),
}
_SCHEMA: JSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


def image_content() -> Image:
    """Return an image."""
    return Image(PIXEL)


def error_handling() -> str:
    """Fail."""
    raise FunctionError("This tool intentionally returns an error for testing")


async def tool_with_progress(ctx: Context) -> str:
    """Tell how far it is."""
    for done in (0.0, 0.5, 1.0):
        ctx.emit(Progress(f"{done:.0%}", done))
        await asyncio.sleep(0.15)  # what is told more often is left out
    return "Done."


def logging_tool() -> str:
    """Do something that might be logged."""
    return "Done."


def take_address(given: JSON) -> str:
    """Take an address."""
    return str(given)


def forget() -> str:
    """Do what needs an approval."""
    return "Done."


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve what the suites want to find, as far as functions can be that."""
    plain = (simple_text, image_content, error_handling, tool_with_progress, logging_tool)
    functions = [function(name=f"test_{one.__name__}")(one) for one in plain]
    asking = ["missing_capability", "streaming_elicitation"]
    asking += [f"input_required_result_{name}" for name in ("elicitation", "tampered_state", "request_state")]
    waiting = [FunctionSpec.of(forget, {"name": f"test_{name}", "approval": "always"}) for name in asking]
    schema = FunctionSpec("json_schema_2020_12_tool", "Take an address.", _SCHEMA, take_address)
    config = {"data_dir": folder, "providers": {}, "server": {"allowed_hosts": ["127.0.0.1", "localhost"]}}
    with ScriptedBackend([]) as model:
        app = Antwort(Config.model_validate(config), backend=model, functions=[*functions, *waiting, schema])
        with running(app) as server:
            yield f"{server.url}/mcp"


def listed() -> set[str]:
    """Return the scenarios that the docs list."""
    table = PAGE.read_text().partition("## Conformance")[2]
    rows = re.findall(r"^\| (`.*`) \| .* \|$", table, re.MULTILINE)
    return {name for names in rows for name in re.findall(r"`([a-z0-9-]+)`", names)}


@pytest.mark.parametrize("suite", SUITES)
def test_what_does_not_pass_is_listed(tmp_path: Path, suite: str) -> None:
    package, options = SUITES[suite]
    program = FOLDER / "node_modules" / package / "dist" / "index.js"
    with serving(tmp_path) as url:
        done = subprocess.run(
            [str(NODE), str(program), "server", "--url", url, *options],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    found = {name: mark for mark, name in re.findall(r"^([✓✗]) ([a-z0-9-]+): \d", summary, re.MULTILINE)}
    assert len(found) > 20, (done.stdout, done.stderr)
    failed = {name for name, mark in found.items() if mark == "✗"}
    assert failed == listed() & {*found}, done.stdout
