"""Look for a model server when none is configured: in the environment, then on the usual loopback ports.

What costs money is never found, only named: a service of the public internet is asked when the operator says so.
"""

import asyncio
import ipaddress
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import SecretStr, ValidationError

from antwort.backends.demo import DEMO_MODEL
from antwort.config.engine import BackendConfig
from antwort.config.origins import DEFAULT
from antwort.config.problems import problems_of
from antwort.errors import ConfigError
from antwort.http1.client import Http1Client

logger = logging.getLogger(__name__)

OPENAI = "https://api.openai.com/v1"
SERVICE = "openai"
"""What stands for the service of `OPENAI_BASE_URL` and `OPENAI_API_KEY` in the place of a URL."""

_LONGEST_LIST = 4 * 1024 * 1024
_NEAR_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 — compared, not bound


class LoopbackServer(Struct, frozen=True):
    """A model server people run on their own machine, and the port it listens on by default."""

    label: str
    port: int


USUAL_SERVERS = (
    LoopbackServer("Ollama", 11434),
    LoopbackServer("vLLM", 8000),
    LoopbackServer("LM Studio", 1234),
    LoopbackServer("llama.cpp", 8080),
)
"""Where to look, in the order of preference."""


class FoundBackend(Struct, frozen=True):
    """A model server that was found, and how to speak of it."""

    config: BackendConfig
    label: str
    """For people, such as `Ollama at http://127.0.0.1:11434/v1, 3 models`; without credentials."""


async def find_backend(
    environ: Mapping[str, str],
    *,
    timeout: float = 0.3,  # noqa: ASYNC109 — of each server, not of the call
    ports: Sequence[LoopbackServer] = USUAL_SERVERS,
    own_port: int | None = None,
) -> FoundBackend | None:
    """Return the model server to use: that of `OPENAI_BASE_URL` if it is near, else the first that answers on loopback.

    Servers are asked for their models at the same time. One that is missing, slow or something else is passed over, and
    so is a server of ours: `own_port` is the one this process will listen on.
    """
    url, key = _named(environ)
    if url and _is_own(url, own_port):
        # Clients of this server set the variable to its address; the key beside it is one of ours.
        logger.warning("OPENAI_BASE_URL is the address of this server itself and is not used as a backend.")
    elif url and _is_near(_checked_host(url)):
        _, host, port = _address(url)
        at = host if port is None else f"{host}:{port}"
        return FoundBackend(_service(url, key), f"OPENAI_BASE_URL, at {at}")
    candidates = [server for server in ports if server.port != own_port]
    found = await asyncio.gather(*(_ask(server, timeout) for server in candidates))
    return next((backend for backend in found if backend is not None), None)


def named_service(environ: Mapping[str, str]) -> BackendConfig:
    """Return the service that `--backend openai` stands for: that of `OPENAI_BASE_URL`, with `OPENAI_API_KEY`."""
    url, key = _named(environ)
    if url:
        _checked_host(url)
    elif not key:
        raise ConfigError(f"--backend {SERVICE} needs a key in OPENAI_API_KEY, or a URL in OPENAI_BASE_URL")
    return _service(url or OPENAI, key)


def service_not_used(environ: Mapping[str, str], *, own_port: int | None = None) -> str | None:
    """Tell of a service that the environment names and that is not asked unless the operator says so."""
    url, key = _named(environ)
    _, host, _ = _address(url or OPENAI)
    if not (url or key) or not host or _is_near(host) or _is_own(url, own_port):
        return None
    name = "OPENAI_BASE_URL" if url else "OPENAI_API_KEY"
    return f"{name} is set, and not used: --backend {SERVICE} asks {host}"


def _named(environ: Mapping[str, str]) -> tuple[str, str]:
    url, key = (environ.get(name, "").strip() for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"))
    return url, key


def _service(url: str, key: str) -> BackendConfig:
    try:
        return BackendConfig(url=url, api_key=SecretStr(key) if key else None)
    except ValidationError as error:
        problems = problems_of(error, BackendConfig, {"url": url}, origin_of=lambda _: DEFAULT)
        raise ConfigError("; ".join(problem.message for problem in problems), where="OPENAI_BASE_URL") from None


def _checked_host(url: str) -> str:
    scheme, host, _ = _address(url)
    if scheme not in {"http", "https"} or not host:
        raise ConfigError("it is not an http:// or https:// URL; correct it or unset it.", where="OPENAI_BASE_URL")
    return host


def _is_near(host: str) -> bool:
    """Tell whether a host is on this machine or network, so that asking it costs nothing."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_NEAR_SUFFIXES)


async def _ask(server: LoopbackServer, seconds: float) -> FoundBackend | None:
    """Ask a server for its models; None if there is no such server."""
    origin = f"http://127.0.0.1:{server.port}"
    client = Http1Client("127.0.0.1", server.port, tls=False, limit=1)
    try:
        async with asyncio.timeout(seconds):
            answer = await _get(client, "/v1/models", seconds)
            models = _models(answer)
            if not models or DEMO_MODEL in models or _is_ours(await _get(client, "/healthz", seconds)):
                return None
    except (OSError, ValueError, RecursionError) as error:
        logger.debug("No model server at %s: %s", origin, str(error) or type(error).__name__)
        return None
    finally:
        await client.close()
    count = "1 model" if len(models) == 1 else f"{len(models)} models"
    api = "anthropic" if _is_of_messages(answer) else "chat"
    return FoundBackend(BackendConfig(url=f"{origin}/v1", api=api), f"{server.label} at {origin}/v1, {count}")


async def _get(client: Http1Client, path: str, seconds: float) -> Any:
    """Return the JSON of an answer; None if it is something else."""
    request = b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: identity\r\n\r\n" % path.encode()
    reply = await client.exchange(request, connect_timeout=seconds, silence=seconds)
    try:
        if reply.status != 200:
            return None
        body = bytearray()
        while chunk := await reply.chunk():
            body += chunk
            if len(body) > _LONGEST_LIST:
                return None
    finally:
        reply.abort()
    try:
        return json.loads(body)
    except ValueError:
        return None


def _models(answer: Any) -> list[str]:
    """Return the ids of a model list; none if the answer is not one."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(model, dict) for model in data):
        return []
    return [model["id"] for model in data if isinstance(model.get("id"), str)]


def _is_of_messages(answer: Any) -> bool:
    """Recognise a list of models in pages, as only servers write it that speak Anthropic's Messages."""
    return "has_more" in answer and "object" not in answer and all(one.get("type") == "model" for one in answer["data"])


def _is_ours(health: Any) -> bool:
    """Recognise the health check of this project's servers, which model servers do not have."""
    return isinstance(health, dict) and health.keys() >= {"status", "version"}


def _is_own(url: str, own_port: int | None) -> bool:
    _, host, port = _address(url)
    return own_port is not None and port == own_port and host in _LOOPBACK_HOSTS


def _address(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL, which leaves credentials behind; empty for what is no URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", "", None
    return parts.scheme, parts.hostname or "", port
