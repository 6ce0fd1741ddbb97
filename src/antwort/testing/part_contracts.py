"""What dialects of model servers, blob stores and sandboxes must hold to, as tests an author inherits."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web

from antwort.backends.base import WholeTurn
from antwort.errors import APIError, NotFoundError, RateLimitError
from antwort.extensions import (
    UNFINISHED,
    BadGatewayError,
    Blobs,
    ModelRequest,
    RemoteBackend,
    Sandbox,
    SandboxLimits,
    Usage,
)
from antwort.testing.script import Turn, call, turn
from antwort.types import JSON

_TOOL: JSON = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


class _Heard:
    """A sink that remembers what it was fed."""

    def __init__(self) -> None:
        self.said = ""
        self.thoughts = ""
        self.calls: dict[int, tuple[str, str]] = {}
        self.used: tuple[int, int] | None = None
        self.reason: str | None = None
        self.pieces = 0

    def whole_turn(self, turn: WholeTurn) -> None:
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:  # noqa: ARG002
        self.said += delta
        self.pieces += 1

    def text_burst(self, deltas: Sequence[str]) -> None:
        for delta in deltas:
            self.text(delta)

    def reasoning(self, delta: str) -> None:
        self.thoughts += delta

    def summary(self, delta: str) -> None:
        self.thoughts += delta

    def opaque(self, content: str) -> None: ...

    def refusal(self, delta: str) -> None:
        self.said += delta

    def tool_call(
        self,
        index: int,
        *,
        call_id: str | None = None,  # noqa: ARG002 - the engine makes ids
        name: str | None = None,
        arguments: str = "",
    ) -> None:
        known, written = self.calls.get(index, ("", ""))
        self.calls[index] = (name or known, written + arguments)

    def usage(self, usage: Usage) -> None:
        self.used = usage.input_tokens, usage.output_tokens

    def finish(self, reason: str) -> None:
        self.reason = reason

    async def flush(self) -> None: ...


class DialectContract:
    """The tests every dialect of model servers passes.

    Subclass it in a test module, say how the dialect is made, and write turns as such a server does:

        class TestOurs(DialectContract):
            def make(self, url: str) -> RemoteBackend:
                return Ours(OursSettings(), "main", BackendConfig(url=url), None)

            def written(self, turn: Turn, *, streamed: bool) -> tuple[str, list[bytes]]:
                ...
    """

    models: ClassVar[JSON] = {"object": "list", "data": [{"id": "small", "object": "model"}]}
    """The list of models, in which there is one called `small`."""

    def make(self, url: str) -> RemoteBackend:
        """Return a backend that asks the server at this URL."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    def written(self, turn: Turn, *, streamed: bool) -> tuple[str, list[bytes]]:
        """Return a turn as the server writes it: its content type, and the pieces of a stream or one of a whole."""
        raise NotImplementedError(f"{type(self).__name__} does not say how turns are written: override written()")

    def test_a_text_is_read_whole_and_streamed(self) -> None:
        """With the tokens used and the reason; a stream is fed as it comes, wherever it was split."""
        said = turn(["Hel", "lo ", "🦊"], usage=(3, 2))
        for streamed in (False, True):
            for cut in (0, 1, 7):
                heard = self._asked(_Server(*self.written(said, streamed=streamed), cut=cut), stream=streamed)
                assert (heard.said, heard.reason) == ("Hello 🦊", "stop")
                assert heard.used == (3, 2), f"the tokens used are {heard.used}"
                assert heard.pieces > 1 or not streamed, "a stream is fed in one piece"

    def test_thoughts_are_no_text(self) -> None:
        """They are fed as thoughts."""
        for streamed in (False, True):
            heard = self._asked(
                _Server(*self.written(turn("Yes.", reasoning="Hm."), streamed=streamed)), stream=streamed
            )
            assert (heard.thoughts, heard.said) == ("Hm.", "Yes.")

    def test_calls_are_read_whole_and_streamed(self) -> None:
        """Several in one turn; arguments are JSON."""
        calls = turn(calls=[call("add", a=1, b=2), call("add", a=3, b=4)])
        for streamed in (False, True):
            server = _Server(*self.written(calls, streamed=streamed))
            heard = self._asked(server, stream=streamed, tools=[_TOOL])
            read = [(name, arguments.replace(" ", "")) for _, (name, arguments) in sorted(heard.calls.items())]
            assert read == [("add", '{"a":1,"b":2}'), ("add", '{"a":3,"b":4}')]
            assert heard.reason in {"stop", "tool_calls"}

    def test_what_is_asked_reaches_the_server(self) -> None:
        """The model, what was said, the instructions and the function are somewhere in the body."""
        items: list[JSON] = [
            {"role": "user", "content": "What is the sum?"},
            {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": 1, "b": 2}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "the sum is three"},
        ]
        server = _Server(*self.written(turn("3"), streamed=False))
        self._asked(server, items=items, instructions="Be brief.", tools=[_TOOL])
        for part in ("small", "What is the sum?", "Be brief.", "Add two numbers.", "the sum is three"):
            assert part in server.asked, f"'{part}' is not in what the server was asked: {server.asked[:500]}"

    def test_a_stream_that_breaks_off_is_not_taken_for_whole(self) -> None:
        """It is an error, or the turn ends as unfinished."""
        kind, pieces = self.written(turn(["a ", "long ", "text"]), streamed=True)
        try:
            heard = self._asked(_Server(kind, pieces[: len(pieces) // 2]), stream=True)
        except APIError:
            return
        assert heard.reason == UNFINISHED, f"half of a stream ends as '{heard.reason}'"

    def test_errors_are_errors_of_the_api(self) -> None:
        """What the server refuses, and what is no answer."""
        with _expected(RateLimitError):
            self._asked(_Server("application/json", [b'{"error": "too many"}'], status=429))
        for kind, body in (("application/json", b"{"), ("application/json", b'"no"'), ("text/html", b"<h1>Hello</h1>")):
            with _expected(BadGatewayError):
                self._asked(_Server(kind, [body]))

    def test_models_are_listed(self) -> None:
        """With their names; the server gives a sign of life."""

        async def run() -> None:
            server = _Server("application/json", [], models=self.models)
            async with server.serving() as url, _closing(self.make(url)) as backend:
                assert [info.id for info in await backend.models()] == ["small"]
                assert await backend.is_there()

        asyncio.run(run())

    def _asked(self, server: "_Server", **fields: Any) -> _Heard:
        fields = {"items": [{"role": "user", "content": "Hi"}], **fields}

        async def run() -> _Heard:
            heard = _Heard()
            async with server.serving() as url, _closing(self.make(url)) as backend:
                await backend.run(ModelRequest(model="small", **fields), heard)
            return heard

        return asyncio.run(run())


class _Server:
    """Answers each POST in the same way, cut into pieces of some bytes or as they are."""

    def __init__(
        self, kind: str, pieces: Sequence[bytes], *, cut: int = 0, status: int = 200, models: JSON | None = None
    ) -> None:
        self.asked = ""
        self._kind = kind
        self._status = status
        self._models = models or {"data": []}
        whole = b"".join(pieces)
        self._pieces = [whole[at : at + cut] for at in range(0, len(whole), cut)] if cut else list(pieces)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._list)
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(self._models)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked = await request.text()
        if len(self._pieces) == 1:
            return web.Response(body=self._pieces[0], status=self._status, headers={"content-type": self._kind})
        answer = web.StreamResponse(status=self._status, headers={"content-type": self._kind})
        await answer.prepare(request)
        for piece in self._pieces:
            await answer.write(piece)
            await asyncio.sleep(0)
        await answer.write_eof()
        return answer


@contextlib.asynccontextmanager
async def _closing(backend: RemoteBackend) -> AsyncIterator[RemoteBackend]:
    try:
        yield backend
    finally:
        await backend.close()


@contextlib.contextmanager
def _expected(error: type[Exception]) -> Any:
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} is expected, and nothing was raised")


# --- blob stores -----------------------------------------------------------------------------------------------------


class BlobStoreContract:
    """The tests every blob store passes; a subclass says how one is made."""

    def make(self, folder: Path) -> Blobs:
        """Return the store, which keeps bytes in this folder or elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        """From any offset, as much as is asked for; by another one that is made alike, too."""
        content = bytes(range(256)) * 20_000

        async def scenario(blobs: Blobs, name: str) -> None:
            await blobs.write(name, _pieces(content, 100_000))
            for offset, length in ((0, len(content)), (0, 1), (300_001, 200_000), (len(content) - 1, 1)):
                assert await _read(blobs, name, offset, length) == content[offset : offset + length]
            other = self.make(tmp_path)
            assert await _read(other, name, 5, 5) == content[5:10]
            await other.close()

        self._run(tmp_path, scenario)

    def test_nothing_is_something(self, tmp_path: Path) -> None:
        """A blob may be empty."""

        async def scenario(blobs: Blobs, name: str) -> None:
            await blobs.write(name, _pieces(b"", 1))
            assert await _read(blobs, name, 0, 0) == b""

        self._run(tmp_path, scenario)

    def test_what_is_not_there_is_not_found(self, tmp_path: Path) -> None:
        """Also after it was deleted, which may be done twice."""

        async def scenario(blobs: Blobs, name: str) -> None:
            for _ in range(2):
                with _expected(NotFoundError):
                    await _read(blobs, name, 0, 1)
                await blobs.write(name, _pieces(b"x", 1))
                for _ in range(2):
                    await blobs.delete(name)
                with _expected(NotFoundError):
                    await _read(blobs, name, 0, 1)

        self._run(tmp_path, scenario)

    def test_it_is_all_or_nothing(self, tmp_path: Path) -> None:
        """What was not written to its end cannot be read, and is deleted without harm."""

        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * 1_000_000
            raise ConnectionResetError

        async def scenario(blobs: Blobs, name: str) -> None:
            with _expected(ConnectionResetError):
                await blobs.write(name, broken())
            with _expected(NotFoundError):
                await _read(blobs, name, 0, 1)
            await blobs.delete(name)

        self._run(tmp_path, scenario)

    def _run(self, folder: Path, scenario: Callable[[Blobs, str], Awaitable[None]]) -> None:
        async def run() -> None:
            blobs, name = self.make(folder), f"file-{secrets.token_hex(16)}"
            try:
                await scenario(blobs, name)
                await blobs.delete(name)
            finally:
                await blobs.close()

        asyncio.run(run())


async def _pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


async def _read(blobs: Blobs, name: str, offset: int, length: int) -> bytes:
    return b"".join([piece async for piece in blobs.read(name, offset, length)])


# --- sandboxes -------------------------------------------------------------------------------------------------------


class SandboxContract:
    """The tests every sandbox passes; a subclass says how one is made. What code must not reach is up to its author."""

    def make(self) -> Sandbox:
        """Return the sandbox."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    def test_a_command_has_input_output_errors_and_an_exit_code(self, tmp_path: Path) -> None:
        """All of it; what it writes into its folder is there afterwards."""

        async def scenario(box: Sandbox, folder: Path) -> None:
            done = await box.run(["sh", "-c", "cat; echo err >&2; exit 7"], folder, stdin=b"in" * 50_000)
            assert (done.ending, done.exit_code) == ("exit", 7)
            assert (done.stdout, done.stderr) == (b"in" * 50_000, b"err\n")
            await box.run(["sh", "-c", 'echo "$MODE" > tea'], folder, environment={"MODE": "green"})
            assert (await box.run(["cat", "tea"], folder)).stdout == b"green\n"

        self._run(tmp_path, scenario)

    def test_limits_end_a_command(self, tmp_path: Path) -> None:
        """What it wrote up to then is there."""

        async def scenario(box: Sandbox, folder: Path) -> None:
            done = await box.run(["sh", "-c", "echo begun; sleep 600"], folder, limits=SandboxLimits(seconds=3.0))
            assert (done.ending, done.exit_code, done.stdout) == ("time", None, b"begun\n")
            done = await box.run(["yes"], folder, limits=SandboxLimits(output_bytes=100_000))
            assert (done.ending, len(done.stdout)) == ("output", 100_000)

        self._run(tmp_path, scenario)

    def test_a_process_is_talked_to(self, tmp_path: Path) -> None:
        """Over its pipes, until the block ends; then it is gone."""

        async def scenario(box: Sandbox, folder: Path) -> None:
            async with box.open(["sh", "-c", 'while read -r line; do echo "heard $line"; done'], folder) as process:
                for word in (b"one", b"two"):
                    await process.write(word + b"\n")
                    assert await process.stdout.readline() == b"heard " + word + b"\n"
            assert process.ending == "killed"

        self._run(tmp_path, scenario)

    def _run(self, folder: Path, scenario: Callable[[Sandbox, Path], Awaitable[None]]) -> None:
        async def run() -> None:
            box, own = self.make(), folder / "own"
            own.mkdir(mode=0o700)
            await box.prepare()
            await asyncio.to_thread(box.adopt, own)
            async with asyncio.timeout(120):
                await scenario(box, own)

        asyncio.run(run())
