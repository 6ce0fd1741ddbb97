"""The models a backend says it has: what else they are called, how lists are read, and how long they are good for."""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from antwort.backends.base import ModelInfo
from antwort.concurrency.single_flight import SingleFlight
from antwort.errors import APIError
from antwort.types import JSON

# --- names: the same model is written with and without a tag or a prefix, and lists may have patterns ----------------


_LATEST = ":latest"
"""The tag that a name without one stands for."""


def is_pattern(name: str) -> bool:
    """Tell whether a name in a list stands for many: `openai/*`."""
    return "*" in name


class ModelNames:
    """A list of names of models, and what else each of them is called.

    What is needed to find other spellings is made at the first name that is not in the list as it is.
    """

    __slots__ = ("_bare", "_names", "_patterns", "_plain")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._plain: dict[str, str] | None = None
        self._bare: dict[str, str | None] = {}
        self._patterns: list[tuple[str, re.Pattern[str]]] = []

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def find(self, name: str) -> str | None:
        """Return what a model is to be asked by that the list has in any way; None if it does not."""
        return name if name in self._names else self.same(name) or self.matching(name)

    def same(self, name: str) -> str | None:
        """Return what a model is to be asked by that is in the list with another tag or prefix; None if it is not.

        `llama3.2` is `llama3.2:latest`, and `models/x` is `x`. A tag that is added to a name of the list, as for a
        variant of a model or the host that runs it, is for the server to know: such a name stays as it is.
        """
        return self._respelled(name) or (name if self._variant_of(name) is not None else None)

    def listed(self, name: str) -> str | None:
        """Return the name in the list of a model that has another tag or prefix there; None if it has none."""
        return self._respelled(name) or self._variant_of(name)

    def _respelled(self, name: str) -> str | None:
        plain = self._read()
        short = name.removesuffix(_LATEST)
        found = plain.get(short) or self._bare.get(short)
        return found or next((plain[rest] for rest in _without_prefixes(short) if rest in plain), None)

    def _variant_of(self, name: str) -> str | None:
        path, slash, last = name.rpartition("/")
        base, colon, _ = last.partition(":")
        base = path + slash + base
        return base if colon and base in self._names else None

    def matching(self, name: str) -> str | None:
        """Return a name that fits a pattern of the list; None if it fits none."""
        self._read()
        return name if any(pattern.fullmatch(name) for _, pattern in self._patterns) else None

    def _read(self) -> dict[str, str]:
        """Return the names without the tag that goes without saying."""
        if self._plain is None:
            names = sorted(name for name in self._names if not is_pattern(name))
            plain = {name.removesuffix(_LATEST): name for name in names}
            for short, name in plain.items():
                for rest in _without_prefixes(short):  # two models that are called so are neither
                    self._bare[rest] = None if rest in self._bare else name
            written = (name for name in self._names if is_pattern(name))
            self._patterns = [(name, re.compile(".*".join(map(re.escape, name.split("*"))))) for name in written]
            self._plain = plain
        return self._plain


def _without_prefixes(name: str) -> Iterator[str]:
    """Yield a name without its first steps, from the longest on."""
    while "/" in name:
        name = name.partition("/")[2]
        if name:
            yield name


# --- lists of models -------------------------------------------------------------------------------------------------


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
    ("max_input_tokens",),  # Anthropic
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
    """Read a list of models in OpenAI's shape, in Anthropic's, in Ollama's, or bare."""
    entries = document
    if isinstance(document, dict):
        entries = document.get("data") or document.get("models")
    for entry in entries if isinstance(entries, list) else ():
        fields = entry if isinstance(entry, dict) else {"id": entry}
        name = fields.get("id") or fields.get("model") or fields.get("name")
        if isinstance(name, str):
            owner = fields.get("owned_by")
            yield ModelInfo(
                name,
                owner if isinstance(owner, str) else backend,
                _created(fields),
                _window(fields),
            )


def _created(fields: JSON) -> int:
    created = fields.get("created")
    if isinstance(created, int):
        return created
    try:
        return int(datetime.fromisoformat(fields["created_at"]).timestamp())  # Anthropic
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def _window(fields: JSON) -> int | None:
    for path in _WINDOWS:
        value: Any = fields
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, int) and value > 0:
            return value
    return None
