"""What the tests of authentication share: a clock one can turn, and an issuer that answers on a real socket."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typing_extensions import override

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Issuer:
    """An OpenID Connect issuer: keys, tokens, and the documents it serves. Paths can be answered by hand."""

    def __init__(self) -> None:
        self.keys: dict[str, PrivateKey] = {}
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.hits: Counter[str] = Counter()
        self.gate = threading.Event()
        self.gate.set()
        self.stopped = threading.Event()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.hits[self.path] += 1
                issuer.gate.wait(30)
                if self.path == "/trickle":
                    self.trickle()
                    return
                status, body, headers = issuer.answer(self.path)
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def trickle(self) -> None:
                """Send a blank now and then, until the client hangs up or the server stops."""
                self.send_response(200)
                self.end_headers()
                while not issuer.stopped.wait(0.005):
                    self.wfile.write(b" ")

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Keep the test output clean."""

        class Server(ThreadingHTTPServer):
            @override
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore clients that hang up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            return 200, json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}).encode(), {}
        if path == "/jwks":
            return 200, json.dumps(self.jwks()).encode(), {}
        return 404, b"", {}

    def jwks(self) -> dict[str, Any]:
        return {"keys": [{"kid": kid, "use": "sig", **public_jwk(key)} for kid, key in self.keys.items()]}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return good claims with some changed; None removes one."""
        now = time.time()
        claims = {"iss": self.url, "aud": "antwort", "sub": "alice", "tenant": "acme", "scope": "read write"}
        merged = {**claims, "iat": now, "exp": now + 600, **changes}
        return {name: value for name, value in merged.items() if value is not None}

    def token(self, kid: str = "one", *, algorithm: str = "RS256", **changes: Any) -> str:
        return jwt.encode(self.claims(**changes), self.keys[kid], algorithm, headers={"kid": kid})

    def close(self) -> None:
        self.gate.set()
        self.stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def public_jwk(key: PrivateKey) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        return dict(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))
    return dict(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def rsa_keys() -> list[rsa.RSAPrivateKey]:
    """Two keys, made once: they are slow to make."""
    return [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]


@pytest.fixture
def issuer(rsa_keys: list[rsa.RSAPrivateKey], monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    issuer = Issuer()
    issuer.keys["one"] = rsa_keys[0]
    yield issuer
    issuer.close()
