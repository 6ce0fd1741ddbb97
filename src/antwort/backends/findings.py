"""What model servers said when they were asked what they have: for the operator in full, for everybody in a word."""

from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from antwort.backends.errors import BROKEN, UNAUTHORIZED, UNSUITABLE, speaks_of_the_server
from antwort.backends.models import KnownModels
from antwort.config import DIALECTS, BackendConfig
from antwort.errors import APIError

if TYPE_CHECKING:  # who only shows what was found does not need it
    from antwort.backends.http.remote import RemoteBackend

State = Literal["ok", "no_models", "unreachable", "wrong_path", "unauthorized", "failing", "not_asked"]

SHOWN = 5
"""Names of models that are told."""


class Finding(Struct, frozen=True):
    """What one model server said."""

    backend: str
    state: State
    models: tuple[str, ...] = ()
    problem: str = ""
    """What went wrong, for the operator: it may hold addresses."""

    @property
    def text(self) -> str:
        """Say it to the operator, in one line."""
        if self.problem:
            return self.problem
        if self.state == "not_asked":
            return "it has not answered yet"
        return counted_models(self.models)


def finding_of(backend: str, known: KnownModels) -> Finding:
    """Return what was found when a server was asked last."""
    names = tuple(info.id for info in known.models)
    if known.problem is not None:
        return failing(backend, known.problem, names)
    return found(backend, names) if known.asked else Finding(backend, "not_asked")


def found(backend: str, models: tuple[str, ...]) -> Finding:
    """Return the finding for a list of models."""
    if models:
        return Finding(backend, "ok", models)
    return Finding(backend, "no_models", problem=f"The backend '{backend}' answers, but has no models; load one there.")


def failing(backend: str, error: APIError, models: tuple[str, ...] = ()) -> Finding:
    """Return the finding for a list that could not be had; `models` are those of an earlier one."""
    return Finding(backend, _state(error), models, error.message)


def _state(error: APIError) -> State:
    if speaks_of_the_server(error):
        return "unreachable"
    if error.code in {UNSUITABLE, BROKEN}:
        return "wrong_path"
    return "unauthorized" if error.code == UNAUTHORIZED else "failing"


def counted_models(models: tuple[str, ...]) -> str:
    """Return how many models there are, with the names of the first."""
    if not models:
        return "no models"
    more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
    return f"{len(models)} {'model' if len(models) == 1 else 'models'}: {', '.join(models[:SHOWN])}{more}"


async def ask(name: str, config: BackendConfig) -> Finding:
    """Ask a server for its models in what it speaks, on a connection of its own."""
    backend: RemoteBackend = DIALECTS.make(config.api, name, config, None, key=f"backends.{name}.api")
    try:
        return found(name, tuple(info.id for info in await backend.models()))
    except APIError as error:
        return failing(name, error)
    finally:
        await backend.close()


async def with_cure(finding: Finding, config: BackendConfig) -> Finding:
    """Add to the finding of a wrong path where the API is, if it is one step further, as with most servers."""
    parts = urlsplit(config.url)
    if finding.state != "wrong_path" or parts.path.rstrip("/").endswith("/v1"):
        return finding
    url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/v1"))
    if (await ask(finding.backend, config.model_copy(update={"url": url}))).state not in {"ok", "no_models"}:
        return finding
    where = urlunsplit(urlsplit(url)._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    return Finding(finding.backend, "wrong_path", problem=f"{finding.problem} It answers at {where}: use that.")
