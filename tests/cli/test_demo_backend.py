"""When the demo model answers: until a model server appears, and for customers only where it is named."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from antwort.app import Antwort
from antwort.backends.detection import LoopbackServer
from antwort.cli.model import keep_looking
from antwort.config import Config
from antwort.testing import ScriptServer

Cli = Callable[..., Result]

KEYS = "auth: {api_keys: [{id: shop, key: a-long-enough-key, tenant: acme}]}\n"
DATABASE = "storage: {url: 'sqlite:///kept.sqlite'}\n"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield int(sock.getsockname()[1])


async def test_without_a_model_the_server_keeps_looking_and_says_when_one_appears(
    tmp_path: Path, closed_port: int
) -> None:
    said: list[str] = []
    label = f"Ollama at http://127.0.0.1:{closed_port}/v1, 1 model"
    async with Antwort(Config(data_dir=tmp_path / "data")) as app:
        ports = (LoopbackServer("Ollama", closed_port),)
        looking = asyncio.create_task(keep_looking(app, said.append, own_port=None, every=0.01, ports=ports))
        before = await app.run("What is 12*7?")
        assert before.model == "antwort-demo"
        assert not said
        with ScriptServer(["From afar."], models=["small"], port=closed_port) as server:
            async with asyncio.timeout(60):
                await looking
            after = await app.run("What is 12*7?", previous_response_id=before.id)
        assert after.model == "small"
        assert "tools" not in server.requests[0]  # the demo model alone is offered the default set unasked
        assert app.state.model == "default"
        assert app.model_description == label
    assert said == [f"  model          {label}: it has appeared, and answers now in the place of the demo model"]


@pytest.mark.parametrize(("settings", "what"), [(KEYS, "authentication"), (DATABASE, "a database")])
def test_customers_are_answered_by_the_demo_model_only_where_it_is_named(cli: Cli, settings: str, what: str) -> None:
    Path("antwort.yaml").write_text(settings + "providers: {}\n", encoding="utf-8")
    for command in (("check",), ("serve", "--port", "0")):
        result = cli(*command)
        assert result.exit_code == 2
        assert f"backends: there is no model server, and with {what} configured the demo model answers only" in (
            result.stderr
        )
        assert "--backend demo" in result.stderr
    named = cli("check", "--backend", "demo")
    assert named.exit_code == 0, named.stderr
    assert "ok  model: the built-in demo model (antwort-demo)" in named.stdout
    Path("antwort.yaml").write_text(settings + "providers: {}\nbackends: {default: {url: demo}}\n", encoding="utf-8")
    assert cli("check").exit_code == 0


async def test_the_demo_model_may_be_one_backend_among_others(tmp_path: Path) -> None:
    with ScriptServer(["From afar."], models=["small"]) as server:
        backends = {"real": {"url": server.url}, "rules": {"url": "demo", "aliases": {"toy": "antwort-demo"}}}
        config = Config.model_validate({"data_dir": tmp_path / "data", "backends": backends})
        async with Antwort(config) as app:
            assert (await app.run("Hello", model="small")).model == "small"
            toy = await app.run("What is 12*7?", model="toy", tools=[{"type": "function", "name": "calculate"}])
            assert "The result for 12*7 is 84." in str(toy.output[-1])
