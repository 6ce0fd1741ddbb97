"""The models a backend says it has: how lists are read, and how long they are good for."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from antwort.backends.base import ModelInfo
from antwort.backends.model_names import ModelNames
from antwort.concurrency.single_flight import SingleFlight
from antwort.errors import APIError
from antwort.types import JSON

logger = logging.getLogger(__name__)


REFRESH = 60.0
"""Seconds for which the list of a server's models is good."""
RETRY = 10.0
"""Seconds after which a server that did not give its list is asked again."""
RECENT = 5.0
"""Seconds for which a list is good enough to say that it lacks a model: one may have been added since."""

_WINDOWS = (
    ("max_model_len",),  # vLLM, SGLang
    ("meta", "n_ctx"),  # llama.cpp
    ("loaded_context_length",),  # LM Studio, which may load less than a model could take
    ("context_window",),  # Groq
    ("context_length",),  # OpenRouter, Together
    ("max_context_length",),  # Mistral, LM Studio
    ("max_input_tokens",),
    ("model_info", "max_input_tokens"),  # LiteLLM
    ("model_info", "max_tokens"),
    ("meta", "n_ctx_train"),  # llama.cpp before it told what it runs with
)
"""Where lists say how many tokens a model takes; the first that does counts."""


class KnownModels:
    """A list of models: asked for when needed, by one request however many wait for it.

    Only the first list is waited for; later ones are fetched while the one before is in use. A failure is logged, and
    what was known stays.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[], Awaitable[Sequence[ModelInfo]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models: tuple[ModelInfo, ...] = ()
        self.names = ModelNames()
        self.problem: APIError | None = None
        """Why it could not be had the last time: for the log and the operator, since the list is everybody's."""
        self.asked = False
        """Whether there was an answer yet, or a failure."""
        self._name = name
        self._fetch_models = fetch
        self._clock = clock
        self._due = float("-inf")
        self._learned = float("-inf")
        self._request = SingleFlight(self._fetch)

    def is_due(self) -> bool:
        """Tell whether the list is unknown, old, or being fetched."""
        return self._request.is_under_way or self._clock() >= self._due

    @property
    def failed(self) -> bool:
        """Whether it could not be had the last time."""
        return self.problem is not None

    @property
    def lists_models(self) -> bool:
        """Whether it says what there is: it could be had the last time, and has models."""
        return bool(self.models) and not self.failed

    async def update(self) -> None:
        """Fetch the list if it is due."""
        if not self.is_due():
            return
        self._request.begin()
        if not self.models and not self.failed:
            await self._request.outcome()

    def is_recent(self) -> bool:
        """Tell whether the list is new enough to say what it lacks; one that cannot be had is not waited for again."""
        return not self.is_due() and (self.failed or self._clock() < self._learned + RECENT)

    async def renew(self) -> None:
        """Fetch the list, and wait for it."""
        await self._request.outcome()

    def begin_update(self) -> None:
        """Begin to fetch the list if it is due, and wait for nothing."""
        if self.is_due():
            self._request.begin()

    def learn(self, models: Sequence[ModelInfo]) -> None:
        """Take a list that somebody fetched."""
        self.models = tuple(models)
        self.names = ModelNames(info.id for info in self.models)
        self.problem, self.asked = None, True
        self._learned = self._clock()
        self._due = self._learned + REFRESH

    def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes. A server with one model takes any name for it."""
        if len(self.models) == 1:
            return self.models[0].context_window
        listed = model if model in self.names else self.names.listed(model)
        return next((info.context_window for info in self.models if info.id == listed), None)

    async def close(self) -> None:
        """Give up a request that is under way."""
        await self._request.close()

    async def _fetch(self) -> None:
        try:
            self.learn(await self._fetch_models())
        except APIError as error:
            # Whoever asks whether the server is ready has it asked again and again.
            level = logging.WARNING if self.problem is None else logging.DEBUG
            logger.log(level, "Cannot list the models of the backend '%s': %s", self._name, error.message)
            self.problem, self.asked = error, True
            self._due = self._clock() + RETRY


def read_models(document: Any, backend: str) -> Iterator[ModelInfo]:
    """Read a list of models in OpenAI's shape, in Ollama's, or bare."""
    entries = document
    if isinstance(document, dict):
        entries = document.get("data") or document.get("models")
    for entry in entries if isinstance(entries, list) else ():
        fields = entry if isinstance(entry, dict) else {"id": entry}
        name = fields.get("id") or fields.get("model") or fields.get("name")
        created = fields.get("created")
        if isinstance(name, str):
            owner = fields.get("owned_by")
            yield ModelInfo(
                name,
                owner if isinstance(owner, str) else backend,
                created if isinstance(created, int) else 0,
                _window(fields),
            )


def _window(fields: JSON) -> int | None:
    for path in _WINDOWS:
        value: Any = fields
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, int) and value > 0:
            return value
    return None
