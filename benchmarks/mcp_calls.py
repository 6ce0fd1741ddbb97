"""What a call of an MCP server's tool costs beyond the server's own answer: CPU time of this process alone."""

import asyncio
import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from antwort import Antwort, Context
from antwort.config import Config
from antwort.providers.mcp import Mcp
from antwort.types import JSON
from benchmarks.measure import Row, cpu_of_rounds

BAR = 1.5
METHOD = """mcp: calls of a tool that answers at once, over a connection that is kept, by the provider as the registry
calls it. The server is another process, whose CPU time does not count; one of the old era gives a session."""
_ERAS = {"2026-07-28": "stateless", "2025-11-25": "greeted"}
_SERVER = """
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"] or 0)) or b'{"method": "DELETE"}')
        method, status, result = asked["method"], 200, {"content": [{"type": "text", "text": "It is warm."}]}
        if method == "server/discover":
            result, status = {"supportedVersions": ["2026-07-28"]}, 400 if self.path == "/greeted" else 200
        elif method == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {}}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}).encode()
        self.send_response_only(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if self.path == "/greeted":
            self.send_header("mcp-session-id", "one")
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_POST


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def mcp_rows(*, full: bool, repeat: int = 200) -> list[Row]:
    """Measure a call of each era."""
    with _server() as url:
        times = asyncio.run(_times(url, rounds=15 if full else 5, repeat=repeat))
    return [Row(f"mcp_call: one call, {era}", statistics.median(times[era]) / 1000, "ms", BAR) for era in _ERAS]


async def _times(url: str, *, rounds: int, repeat: int) -> dict[str, list[float]]:
    with TemporaryDirectory() as folder:
        config = Config(data_dir=Path(folder), providers={})
        async with Antwort(config, providers=[Mcp()]) as app:

            def call(era: str) -> Any:
                options: JSON = {"type": "mcp", "server_url": f"{url}/{_ERAS[era]}", "headers": {}, "tool": "weather"}
                options |= {"guarded": False, "in_headers": {}, "label": "w", "repeatable": False, "program": None}
                options |= {"tokens": None, "own": None}
                ctx = Context("default", options=options)
                return app.registry.execute("mcp", {"arguments": '{"city": "Berlin"}'}, ctx)

            for era in _ERAS:
                result = await call(era)
                if result.output != "It is warm.":
                    raise RuntimeError(result.output)
            calls = {era: partial(call, era) for era in _ERAS}
            return await cpu_of_rounds(calls, rounds=rounds, repeat=repeat)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Run a server in a process of its own; give its address."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout is not None else ""
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
