"""Whatever users can set, call, read or import stands somewhere in the pages."""

import re

from scripts import docs

import antwort
import antwort.provider
import antwort.testing
from antwort.config import load_config

TEXT = "\n".join(page.read_text() for page in docs.pages())
CODE = "\n".join([*re.findall(r"`([^`\n]+)`", TEXT), *(block.text for block in docs.blocks(TEXT))])


def test_every_setting() -> None:
    keys = {re.sub(r"\.\d+\.", "[].", entry.key) for entry in load_config(environ={}).entries()}
    assert keys > {"server.port", "functions.timeout"}
    assert {key for key in keys if f"`{key}`" not in TEXT} == set()


def test_every_command_and_option() -> None:
    contexts = list(docs.command_contexts())
    assert len(contexts) > 10
    for ctx in contexts:
        assert f"## `{ctx.command_path}`" in TEXT
        for parameter in ctx.command.params:
            assert all(option in CODE for option in parameter.opts), f"{ctx.command_path} {parameter.name}"


def test_every_metric() -> None:
    names = re.findall(r"^\| `(\w+)`", docs.metrics(), re.MULTILINE)
    assert set(names) > {"antwort_http_requests_total", "gen_ai_client_token_usage"}
    assert [name for name in names if TEXT.count(name) == 0] == []


def test_every_public_name() -> None:
    modules = (antwort.provider, antwort, antwort.testing)
    names = [(module.__name__, name) for module in modules for name in module.__all__]
    assert len(names) > 50
    assert [f"{module}.{name}" for module, name in names if not re.search(rf"(?<!\w){name}(?!\w)", CODE)] == []
