"""An MCP server with one function, `calculate`, that always has the same result: for gateways that call functions so.

It speaks the part of MCP's streamable HTTP that a client needs to list and call functions, without sessions.

    python benchmarks/peers/tool_server.py
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

CALCULATE = {
    "name": "calculate",
    "description": "Evaluate an arithmetic expression exactly.",
    "inputSchema": {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "Such as 2*(3+4)."}},
        "required": ["expression"],
    },
}


def result_of(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request, whichever of the few that clients make."""
    if method == "initialize":
        return {
            "protocolVersion": parameters.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tools", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [CALCULATE]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "84"}], "isError": False}
    return {}


class Handler(BaseHTTPRequestHandler):
    """Answers each message on its own."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the head and the body of an answer leave together

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:  # a notification
            self._answer(202, b"")
            return
        result = result_of(message["method"], message.get("params") or {})
        self._answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def do_GET(self) -> None:
        self._answer(405, b"")  # there is no stream of the server's own messages

    def do_DELETE(self) -> None:
        self._answer(405, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"Listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
