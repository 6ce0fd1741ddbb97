"""The gateways that are compared: their versions, how each is started, and what each cannot do.

What makes the comparison fair holds for all of them: one process on one core, no authentication, no log of requests,
metrics as they are by default, everything on the loopback interface, responses kept in the same kind of place. Where a
gateway has no such setting, its figure has a remark.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gateway import ANTWORT, REFERENCE

MODELS = ("json", "burst-64", "paced-100", "call")
"""Those of the mock model server that the rows ask for."""

JSON_REQUEST = "JSON request"
STORED = "JSON request, stored"
STORED_POSTGRES = "JSON request, stored in PostgreSQL"
BURST_EVENT = "burst event"
PACED_EVENT = "paced event"
CLIENT_CALL = "two turns, a function of the client"
SERVER_CALL = "two turns, a function of the server"
MEMORY = "memory at rest"
START = "start, to the first answer"
PASSED_ON = "passes the Responses API on to a model server that has it, and does not translate"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a gateway runs: the servers beside it, its ports, a folder for its files, a database if it gets one."""

    model_url: str
    """Without the `/v1` of the API."""
    tools_url: str
    """Of an MCP server with the function `calculate`."""
    port: int
    metrics_port: int
    folder: Path
    database_url: str = ""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A column of the comparison."""

    name: str
    command: Callable[[Site, Path], Sequence[str]]
    """Returns how it is started, from the folder of its programs; it may write files of configuration."""
    requirement: str = ""
    """What is installed from PyPI; nothing for what is here."""
    package: str = ""
    """The name of that, if it is not the gateway's: several are set up in different ways."""
    tells_port: bool = False
    """It prints the port that it has chosen, and is not told one."""
    server_tools: Callable[[Site], Sequence[Mapping[str, Any]]] | None = None
    """What a request names to have the gateway execute the function `calculate`."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why a row has no figure."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """What has to be known of a figure; the key of what holds for all of them is empty."""


def reference() -> Gateway:
    """R translates, and does nothing else."""

    def command(site: Site, _: Path) -> Sequence[str]:
        program = Path(__file__).parents[1] / "reference.py"
        return (sys.executable, str(program), site.model_url.rpartition(":")[2])

    nothing = "R keeps nothing"
    functions = "R knows no functions"
    return Gateway(
        REFERENCE,
        command,
        tells_port=True,
        missing={STORED: nothing, STORED_POSTGRES: nothing, CLIENT_CALL: functions, SERVER_CALL: functions},
    )


def antwort() -> Gateway:
    """As a user starts it: embedded storage, metrics on, no log of requests."""

    def command(site: Site, _: Path) -> Sequence[str]:
        config: dict[str, Any] = {"backends": {"default": {"url": f"{site.model_url}/v1"}}}
        if site.database_url:
            config["storage"] = {"url": site.database_url}
        file = site.folder / "antwort.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        options = ("--port", str(site.port), "--config", str(file), "--data-dir", str(site.folder / "data"))
        return (*ANTWORT, "serve", *options)

    return Gateway(
        "antwort",
        command,
        server_tools=lambda _: [{"type": "function", "name": "calculate"}],
        remarks={SERVER_CALL: "a Python function in the server's process; the others call an MCP server, not counted"},
    )


def agentic_api() -> Gateway:
    """vLLM's gateway, in Rust: SQLite as antwort by default; its log goes by RUST_LOG. It asks for no worker count."""

    def command(site: Site, programs: Path) -> Sequence[str]:
        # It wants the name of a host, also where the parameter of that name says otherwise: a socket.
        database = site.database_url.replace("@/", "@localhost/") or f"sqlite://{site.folder / 'agentic.db'}"
        return (
            *("env", "RUST_LOG=error", f"HOME={site.folder}", str(programs / "agentic-server")),
            *("--llm-api-base", site.model_url, "--skip-llm-ready-check"),
            *("--gateway-host", "127.0.0.1", "--gateway-port", str(site.port), "--db-url", database),
        )

    return Gateway(
        "agentic-api",
        command,
        requirement="agentic-api==0.9.0",
        server_tools=mcp_tools,
        remarks={"": PASSED_ON},
    )


def smg() -> Gateway:
    """Shepherd Model Gateway, in Rust, in the mode for servers with OpenAI's API, the only one that keeps responses.

    Its checks of the model server's health are off, as the others make none; its limit of waiting requests, its circuit
    breaker and its metrics stay as they are, as antwort has those too.
    """

    def command(site: Site, programs: Path) -> Sequence[str]:
        history: Sequence[str] = ("--history-backend", "memory")
        if site.database_url:
            history = ("--history-backend", "postgres", "--postgres-db-url", site.database_url)
        return (
            *("env", f"HOME={site.folder}", str(programs / "smg"), "launch", "--backend", "openai"),
            *("--worker-urls", site.model_url, "--host", "127.0.0.1", "--port", str(site.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(site.metrics_port)),
            *("--log-level", "error", "--disable-health-check", *history),
        )

    return Gateway(
        "smg",
        command,
        requirement="smg==1.13.0",
        server_tools=mcp_tools,
        remarks={
            "": f"{PASSED_ON}; its wheel for aarch64 is built to be small, and about half as fast as the one for "
            "x86-64",
            STORED: "in memory, as it has no embedded database; gone after a restart",
        },
    )


def litellm(*, translates: bool) -> Gateway:
    """LiteLLM's proxy, in Python, with one worker, in its mode for production and with the prices it comes with.

    It would fetch prices from the network at every start. It refuses to start without a key unless told that this is
    local: no other gateway here checks one. With `use_chat_completions_api` it translates, as antwort does; without, it
    passes requests on, as SMG does.
    """

    def command(site: Site, programs: Path) -> Sequence[str]:
        shared = {"api_base": f"{site.model_url}/v1", "api_key": "none", "use_chat_completions_api": translates}
        config = {
            "model_list": [
                {"model_name": model, "litellm_params": {"model": f"openai/{model}", **shared}} for model in MODELS
            ],
            "litellm_settings": {"telemetry": False},
            "mcp_servers": {"tools": {"url": site.tools_url, "transport": "http", "allow_all_keys": True}},
        }
        file = site.folder / "litellm.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        settings = {
            "LITELLM_LOG": "ERROR",
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "HOME": str(site.folder),
        }
        return (
            *("env", *(f"{name}={value}" for name, value in settings.items()), str(programs / "litellm")),
            *("--config", str(file), "--host", "127.0.0.1", "--port", str(site.port), "--num_workers", "1"),
        )

    database = "needs Prisma to keep responses, which litellm[proxy] does not install"
    return Gateway(
        "litellm" if translates else "litellm-passing",
        command,
        requirement="litellm[proxy]==1.105.3",  # the newest whose own requirements PyPI has
        package="litellm",
        server_tools=lambda _: [{**MCP_TOOL, "server_label": "litellm", "server_url": "litellm_proxy/mcp/tools"}],
        missing={STORED: database, STORED_POSTGRES: database},
        remarks={SERVER_CALL: "with MCP it passes the Responses API on, too"} if translates else {"": PASSED_ON},
    )


MCP_TOOL: Mapping[str, Any] = {"type": "mcp", "require_approval": "never"}


def mcp_tools(site: Site) -> Sequence[Mapping[str, Any]]:
    return [{**MCP_TOOL, "server_label": "tools", "server_url": site.tools_url}]


def gateways() -> list[Gateway]:
    return [reference(), antwort(), agentic_api(), smg(), litellm(translates=True), litellm(translates=False)]
