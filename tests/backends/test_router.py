"""Models, aliases and backends: who gets a request."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.backends.conftest import Notes, a_request

from antwort.backends import ModelInfo, ModelRequest, ModelRoute, ModelRouter, TurnSink
from antwort.backends.errors import UNREACHABLE
from antwort.backends.models import RECENT, RETRY
from antwort.errors import NotFoundError, ServiceUnavailableError


class Server:
    """A backend with some models, or with a reason not to list them."""

    def __init__(self, name: str, *models: str, problem: bool = False) -> None:
        self.name = name
        self.names = models
        self.problem = problem
        self.listed = 0
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked_for_list = asyncio.Event()
        self.gave_list = asyncio.Event()
        self.closed = False

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        self.asked.append(request.model)
        sink.text(self.name)

    async def models(self) -> Sequence[ModelInfo]:
        self.listed += 1
        self.asked_for_list.set()
        await self.gate.wait()
        self.gave_list.set()
        if self.problem:
            raise ServiceUnavailableError(f"The backend '{self.name}' cannot be reached.", code=UNREACHABLE)
        return [ModelInfo(model, "them") for model in self.names]

    async def count_tokens(self, request: ModelRequest) -> int | None:
        self.asked.append(f"count {request.model}")
        return 7

    async def context_window(self, model: str) -> int | None:
        self.asked.append(f"window {model}")
        return 4096

    async def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def route(server: Server, *models: str, aliases: Mapping[str, str] | None = None) -> ModelRoute:
    return ModelRoute(server, models, aliases or {})


async def resolved(router: ModelRouter, name: str | None) -> tuple[str, str]:
    target = await router.resolve(name)
    return target.backend.name, target.model


ROUTES: dict[str, tuple[str, str]] = {
    "fast": ("near", "llama-8b"),
    "big": ("near", "llama-70b"),
    "far/x": ("far", "x"),
    "far/best": ("far", "gpt"),
    "meta/llama": ("far", "meta/llama"),
    "only-there": ("far", "only-there"),
    "in-both": ("open", "in-both"),
}


LISTS: dict[str, tuple[str, ...]] = {
    "ollama": ("llama3.2:latest", "qwen3:8b", "hf.co/bartowski/SmolLM2-GGUF:Q4_K_M"),
    "openrouter": ("openai/gpt-5", "anthropic/claude-sonnet-5", "openrouter/auto", "deepseek/deepseek-r2:free"),
    "gemini": ("models/gemini-3-flash", "models/text-embedding-005"),
    "litellm": ("bedrock/*", "azure/*", "team-model"),
    "sglang": ("Qwen/Qwen3-8B",),
    "fireworks": ("accounts/fireworks/models/kimi-k3",),
    "lmstudio": ("google/gemma-4-12b", "text-embedding-nomic"),
    "cloud": ("gpt-5-mini", "gpt-5-mini-2026-01-01", "ft:gpt-5-mini:us::abc"),
}
"""Models as servers list them."""
NAMES: dict[str, tuple[str, str]] = {
    "llama3.2": ("ollama", "llama3.2:latest"),
    "llama3.2:latest": ("ollama", "llama3.2:latest"),
    "library/llama3.2": ("ollama", "llama3.2:latest"),
    "registry.ollama.ai/library/llama3.2:latest": ("ollama", "llama3.2:latest"),
    "qwen3:8b": ("ollama", "qwen3:8b"),
    "library/qwen3:8b": ("ollama", "qwen3:8b"),
    "hf.co/bartowski/SmolLM2-GGUF:Q4_K_M": ("ollama", "hf.co/bartowski/SmolLM2-GGUF:Q4_K_M"),
    "openai/gpt-5": ("openrouter", "openai/gpt-5"),
    "openai/gpt-5:nitro": ("openrouter", "openai/gpt-5:nitro"),
    "openai/gpt-5:online": ("openrouter", "openai/gpt-5:online"),
    "openrouter/openai/gpt-5": ("openrouter", "openai/gpt-5"),
    "openrouter/auto": ("openrouter", "openrouter/auto"),
    "gpt-5": ("openrouter", "openai/gpt-5"),
    "anthropic/claude-sonnet-5": ("openrouter", "anthropic/claude-sonnet-5"),
    "claude-sonnet-5": ("openrouter", "anthropic/claude-sonnet-5"),
    "deepseek/deepseek-r2:free": ("openrouter", "deepseek/deepseek-r2:free"),
    "gemini-3-flash": ("gemini", "models/gemini-3-flash"),
    "models/gemini-3-flash": ("gemini", "models/gemini-3-flash"),
    "gemini/gemini-3-flash": ("gemini", "gemini-3-flash"),
    "text-embedding-005": ("gemini", "models/text-embedding-005"),
    "bedrock/us.amazon.nova-pro": ("litellm", "bedrock/us.amazon.nova-pro"),
    "azure/my-deployment": ("litellm", "azure/my-deployment"),
    "litellm/azure/my-deployment": ("litellm", "azure/my-deployment"),
    "team-model": ("litellm", "team-model"),
    "Qwen/Qwen3-8B": ("sglang", "Qwen/Qwen3-8B"),
    "Qwen3-8B": ("sglang", "Qwen/Qwen3-8B"),
    "Qwen/Qwen3-8B:my-lora": ("sglang", "Qwen/Qwen3-8B:my-lora"),
    "accounts/fireworks/models/kimi-k3": ("fireworks", "accounts/fireworks/models/kimi-k3"),
    "kimi-k3": ("fireworks", "accounts/fireworks/models/kimi-k3"),
    "gemma-4-12b": ("lmstudio", "google/gemma-4-12b"),
    "models/gpt-5-mini": ("cloud", "gpt-5-mini"),
    "openai/gpt-5-mini": ("cloud", "gpt-5-mini"),
    "ft:gpt-5-mini:us::abc": ("cloud", "ft:gpt-5-mini:us::abc"),
}
"""Names that people write who use these servers: who is asked, and by which name."""


@pytest.mark.parametrize(("name", "expected"), ROUTES.items())
async def test_a_name_finds_its_backend(name: str, expected: tuple[str, str]) -> None:
    router = ModelRouter(
        [
            route(Server("near"), "llama-8b", "llama-70b", aliases={"fast": "llama-8b", "big": "llama-70b"}),
            route(Server("open", "in-both", "big")),
            route(Server("far", "only-there", "in-both", "meta/llama"), aliases={"best": "gpt"}),
        ]
    )
    assert await resolved(router, name) == expected


async def test_an_alias_wins_over_a_model_of_the_same_name() -> None:
    first, second = Server("first"), Server("second")
    router = ModelRouter([route(first, "small"), route(second, "large", aliases={"small": "large"})])
    assert await resolved(router, "small") == ("second", "large")


async def test_a_turn_is_run_with_the_models_real_name(notes: Notes) -> None:
    server = Server("near")
    await ModelRouter([route(server, aliases={"fast": "llama"})]).run(a_request(model="fast"), notes)
    assert server.asked == ["llama"]
    assert notes.said() == "near"


async def test_one_backend_that_takes_any_name_is_not_asked_for_its_list() -> None:
    server = Server("near", "llama")
    router = ModelRouter([ModelRoute(server, any_model=True)])
    assert await resolved(router, "whatever/you-say") == ("near", "whatever/you-say")
    assert server.listed == 0


async def test_a_name_that_no_backend_lists_goes_to_the_one_that_takes_any() -> None:
    router = ModelRouter([route(Server("near", "llama")), ModelRoute(Server("far", "qwen"), any_model=True)])
    assert await resolved(router, "llama") == ("near", "llama")
    assert await resolved(router, "whatever") == ("far", "whatever")


async def test_a_backend_that_is_alone_gets_every_name_and_is_not_asked_for_its_list() -> None:
    server = Server("near", "llama3.2:latest")
    router = ModelRouter([route(server)])
    for name in NAMES:
        assert await resolved(router, name) == ("near", name)
    assert server.listed == 0


@pytest.mark.parametrize("name", NAMES)
async def test_names_that_model_servers_take_find_them_among_several(name: str) -> None:
    router = ModelRouter([*(route(Server(server, *listed)) for server, listed in LISTS.items())])
    assert await resolved(router, name) == NAMES[name]


async def test_a_prefix_that_two_models_have_decides_nothing() -> None:
    router = ModelRouter([route(Server("near", "a/llama", "b/llama")), route(Server("far", "qwen"))])
    with pytest.raises(NotFoundError):
        await router.resolve("llama")
    with pytest.raises(NotFoundError):
        await router.resolve("c/llama")


async def test_patterns_of_the_configuration_claim_names_and_choose_from_what_a_server_lists() -> None:
    router = ModelRouter([route(Server("near", "gpt-x", "other"), "gpt-*", "fixed"), route(Server("far", "qwen"))])
    assert await resolved(router, "gpt-y") == ("near", "gpt-y")
    assert await resolved(router, "near/gpt-z") == ("near", "gpt-z")
    assert await resolved(router, None) == ("near", "fixed")
    assert [info.id for info in await router.models()] == ["fixed", "gpt-x", "qwen"]
    with pytest.raises(NotFoundError):
        await router.resolve("near/other")


async def test_a_list_in_the_configuration_holds_unless_any_name_is_taken() -> None:
    strict, open_handed = Server("strict"), Server("open-handed")
    with pytest.raises(NotFoundError):
        await ModelRouter([route(strict, "a")]).resolve("b")
    router = ModelRouter([route(strict, "a"), ModelRoute(open_handed, ("c",), any_model=True)])
    assert await resolved(router, "b") == ("open-handed", "b")


async def test_a_name_that_begins_with_its_backends_and_is_listed_stays_whole() -> None:
    router = ModelRouter([route(Server("router", "router/auto", "x")), route(Server("far", "qwen"))])
    assert await resolved(router, "router/auto") == ("router", "router/auto")
    assert await resolved(router, "router/x") == ("router", "x")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("llama3.2", None),
        ("llama3.2:latest", None),
        ("fast", None),
        ("llama3.3", "The backend 'near' does not list the model 'llama3.3'. It has 'llama3.2:latest'."),
    ],
)
async def test_what_speaks_against_a_model_is_told_before_it_is_asked(name: str, problem: str | None) -> None:
    router = ModelRouter([route(Server("near", "llama3.2:latest"), aliases={"fast": "llama3.2"})])
    await router.findings()
    told = await router.problem_of(name)
    assert told is None if problem is None else told is not None and told.startswith(problem)
    assert told is None or "`any_model: true`" in told


async def test_a_model_is_found_in_the_list_however_it_is_written() -> None:
    router = ModelRouter([route(Server("near", "llama3.2:latest", "models/gemini"))])
    found = {name: await router.find(name) for name in ("llama3.2", "gemini", "nobody")}
    assert {name: info and info.id for name, info in found.items()} == {
        "llama3.2": "llama3.2:latest",
        "gemini": "models/gemini",
        "nobody": None,
    }


async def test_a_name_that_no_backend_lists_is_not_found_and_the_cure_is_told() -> None:
    router = ModelRouter([route(Server(f"server-{number}", "llama-8b")) for number in range(2)])
    with pytest.raises(NotFoundError, match=r"'lama-8b' does not exist.*'llama-8b'.*`any_model`") as caught:
        await router.resolve("lama-8b")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_a_name_longer_than_any_is_no_model_even_where_any_is_taken() -> None:
    router = ModelRouter([ModelRoute(Server("far", "qwen"), any_model=True)])
    with pytest.raises(NotFoundError) as caught:
        await router.resolve("x" * 100_000)
    assert len(caught.value.message) <= 10_001


@pytest.mark.parametrize("silent", [Server("near", problem=True), Server("near")])
async def test_a_backend_that_does_not_say_what_it_has_is_asked_for_any_model(silent: Server) -> None:
    assert await resolved(ModelRouter([route(silent)]), "whatever") == ("near", "whatever")


async def test_a_model_that_was_added_is_found_without_asking_at_every_request() -> None:
    clock, server = Clock(), Server("near", "llama")
    router = ModelRouter([route(server), route(Server("far", "gpt"))], clock=clock)
    for _ in range(2):
        with pytest.raises(NotFoundError):
            await router.resolve("qwen")
    assert server.listed == 1
    server.names = ("llama", "qwen")
    clock.now += RECENT
    assert await resolved(router, "qwen") == ("near", "qwen")
    assert server.listed == 2


async def test_what_backends_say_is_told_in_a_word_and_asked_again_in_time() -> None:
    clock, near, away = Clock(), Server("near", "a", "b"), Server("away", problem=True)
    router = ModelRouter(
        [route(near), route(away), route(Server("bare")), route(Server("listed", "c"), "c")], clock=clock
    )
    assert {found.state for found in router.last_findings()} == {"not_asked"}
    states = {found.backend: (found.state, found.models) for found in await router.findings()}
    assert states == {
        "near": ("ok", ("a", "b")),
        "away": ("unreachable", ()),
        "bare": ("no_models", ()),
        "listed": ("ok", ("c",)),
    }
    away.problem, away.names = False, ("d",)
    clock.now += RETRY
    away.gave_list.clear()
    assert router.last_findings()[1].state == "unreachable"  # it is asked again, but not waited for
    await away.gave_list.wait()
    assert router.last_findings()[1].state == "ok"


@pytest.mark.parametrize("name", ["lama-8b", "near/lama-8b"])
async def test_a_name_that_cannot_be_anywhere_is_not_found(name: str) -> None:
    router = ModelRouter([route(Server("near"), "llama-8b", "qwen")])
    with pytest.raises(NotFoundError, match=f"'{name}' does not exist.*'llama-8b'") as caught:
        await router.resolve(name)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_without_a_name_the_default_model_is_used() -> None:
    router = ModelRouter([route(Server("near"), "a"), route(Server("far"), "b")], default_model="b")
    assert await resolved(router, None) == ("far", "b")
    assert await resolved(router, "") == ("far", "b")


async def test_without_a_default_the_first_model_of_the_first_backend_is_used() -> None:
    assert await resolved(ModelRouter([route(Server("near"), "a", "b")]), None) == ("near", "a")
    assert await resolved(ModelRouter([route(Server("near", "x", "y"))]), None) == ("near", "x")


@pytest.mark.parametrize(
    ("routes", "error", "reason"),
    [
        ([], ServiceUnavailableError, "No backend is configured"),
        ([route(Server("near"))], NotFoundError, "'near' has none"),
        (
            [route(Server("near", problem=True))],
            ServiceUnavailableError,
            "'near' cannot be asked for one",
        ),
    ],
)
async def test_without_any_model_the_reason_is_told(routes: list[ModelRoute], error: Any, reason: str) -> None:
    with pytest.raises(error, match=reason):
        await ModelRouter(routes).resolve(None)


async def test_all_models_and_aliases_are_listed_once() -> None:
    router = ModelRouter(
        [
            route(Server("near"), "a", "b", aliases={"fast": "a"}),
            route(Server("down", problem=True)),
            route(Server("far", "b", "c"), aliases={"best": "c"}),
        ]
    )
    listed = await router.models()
    assert [(info.id, info.owned_by) for info in listed] == [
        ("a", "near"),
        ("b", "near"),
        ("fast", "near"),
        ("c", "them"),
        ("best", "far"),
    ]


async def test_a_backend_that_gives_no_list_does_not_stop_the_others() -> None:
    down, far = Server("down", problem=True), Server("far", "c")
    router = ModelRouter([route(down), route(far)])
    assert await resolved(router, "c") == ("far", "c")
    assert await resolved(router, "d") == ("down", "d")
    assert down.listed == 1


async def test_the_list_is_asked_for_once_however_many_wait() -> None:
    near, far = Server("near"), Server("far", "c")
    far.gate.clear()
    router = ModelRouter([route(near), route(far)])
    waiting = [asyncio.create_task(resolved(router, "c")) for _ in range(5)]
    await far.asked_for_list.wait()
    waiting[0].cancel()
    far.gate.set()
    assert await asyncio.gather(*waiting[1:]) == [("far", "c")] * 4
    assert far.listed == 1


async def test_the_list_is_kept_for_a_while_and_refreshed_without_waiting() -> None:
    clock, near, far = Clock(), Server("near"), Server("far", "c")
    router = ModelRouter([route(near), route(far)], clock=clock)
    assert await resolved(router, "c") == ("far", "c")
    clock.now += 59
    await resolved(router, "c")
    assert far.listed == 1
    clock.now += 1
    far.names = ("d",)
    far.gate.clear()
    assert await resolved(router, "c") == ("far", "c")  # the old list, while the new one is fetched
    far.gave_list.clear()
    far.gate.set()
    await far.gave_list.wait()
    assert await resolved(router, "d") == ("far", "d")
    assert far.listed == 2


async def test_what_was_known_stays_when_a_list_cannot_be_refreshed() -> None:
    clock, near, far = Clock(), Server("near"), Server("far", "c")
    router = ModelRouter([route(near), route(far)], clock=clock)
    await router.resolve("c")
    far.problem = True
    clock.now += 60
    far.gave_list.clear()
    await router.models()
    await far.gave_list.wait()
    assert far.listed == 2
    assert await resolved(router, "c") == ("far", "c")


async def test_closing_gives_everything_back() -> None:
    near, far = Server("near"), Server("far")
    far.gate.clear()
    router = ModelRouter([route(near), route(far)])
    task = asyncio.create_task(router.models())
    await far.asked_for_list.wait()
    await router.close()
    assert near.closed
    assert far.closed
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_tokens_are_counted_where_a_turn_would_go() -> None:
    near, far = Server("near"), Server("far")
    router = ModelRouter([route(near, "llama", aliases={"fast": "llama"}), route(far, "gpt")])
    assert await router.count_tokens(a_request(model="fast")) == 7
    assert await router.context_window("far/gpt") == 4096
    assert await router.context_window("fast") == 4096
    assert (near.asked, far.asked) == (["count llama", "window llama"], ["window gpt"])
    with pytest.raises(NotFoundError):
        await router.context_window("nobody")
    with pytest.raises(NotFoundError):
        await router.count_tokens(a_request(model="nobody"))
