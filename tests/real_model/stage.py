"""A real model behind the shipped command, and the official SDK before it; every answer is linted."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
from openai import OpenAI
from tests.http.sdk import Recording, Tape
from tests.real_model.llama_server import MODEL
from typing_extensions import override

from antwort.types import JSON


class _RecordingOfResponses(Recording):
    """Keeps what is read of the Responses API; Chat Completions have other rules."""

    @override
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        kept = "/responses" in request.url.path
        return super().handle_request(request) if kept else httpx2.HTTPTransport.handle_request(self, request)


@dataclass(frozen=True)
class Stage:
    """A model server and antwort in front of it."""

    model_url: str
    model_log: Path
    url: str

    @contextlib.contextmanager
    def client(self) -> Iterator[OpenAI]:
        """Give an SDK client that is strict and tries nothing again; check whatever it has read."""
        tapes: list[Tape] = []
        with OpenAI(
            base_url=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            timeout=300,
            http_client=httpx2.Client(transport=_RecordingOfResponses(tapes)),
            _strict_response_validation=True,
        ) as client:
            yield client
        for tape in tapes:
            tape.lint()

    def post(self, path: str, body: JSON) -> httpx.Response:
        """Send a request without the SDK."""
        return httpx.post(f"{self.url}/v1{path}", json=body, timeout=300)

    def ask_model(self, path: str, body: JSON) -> JSON:
        """Ask the model server itself."""
        answer: JSON = httpx.post(f"{self.model_url}{path}", json=body, timeout=300).raise_for_status().json()
        return answer

    def tokens(self, *messages: JSON, **options: Any) -> int:
        """Return how many tokens the model server makes of a chat."""
        prompt = self.ask_model("/apply-template", {"messages": messages, **options})["prompt"]
        body = {"content": prompt, "add_special": True, "parse_special": True}
        return len(self.ask_model("/tokenize", body)["tokens"])

    def executions(self, function: str) -> float:
        """Return how often a function of the server was executed with success."""
        lines = httpx.get(f"{self.url}/metrics").raise_for_status().text.splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("antwort_builtin_tool_executions_total{")
            and f'tool_name="{function}"' in line
            and 'status="success"' in line
        )

    def stops_writing(self, earlier: int) -> bool:
        """Tell whether the model comes to stop in the middle of an answer, after so many earlier ones."""
        # It looks after its connections while it writes; each round is a request, and there is an end to them.
        return any(self.stopped() > earlier for _ in range(20_000))

    def stopped(self) -> int:
        """Return how many answers the model has left unfinished because nobody wanted them any more."""
        httpx.get(f"{self.model_url}/health", timeout=300).raise_for_status()
        return self.model_log.read_text().count("cancel task")


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Start both servers, and stop them at the end."""
    with (
        _process(folder / "model.log", "tests.real_model.llama_server") as model_url,
        _process(folder / "antwort.log", *_serve(folder, model_url)) as url,
    ):
        yield Stage(model_url, folder / "model.log", url)
    complaints = (folder / "antwort.log").read_text()
    assert not complaints, complaints


def _serve(folder: Path, model_url: str) -> list[str]:
    options = {"--port": "0", "--backend": f"{model_url}/v1", "--model": MODEL, "--data-dir": str(folder / "data")}
    options["--log-level"] = "warning"
    return ["antwort", "serve", *(word for option in options.items() for word in option)]


@contextlib.contextmanager
def _process(log: Path, module: str, *arguments: str) -> Iterator[str]:
    """Run a module as a process; give the address it says it listens on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTWORT_", "OPENAI_"))}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=log.parent,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = next((line for line in process.stdout if line.startswith("Listening on ")), None)
            assert line is not None, log.read_text()
            yield line.removeprefix("Listening on ").strip()
        finally:
            process.terminate()
