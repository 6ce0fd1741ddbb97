"""Registering, finding, enabling, and the lifetime of providers."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from antwort import Antwort, Context, FunctionRegistry, FunctionSpec
from antwort.config import Config
from antwort.errors import ConfigError, DefinitionError, UnknownFunctionError
from antwort.provider import Counter, Hosted, Provider, function, route


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Searching(Provider):
    name = "searching"

    @function(hosted=Hosted(types=("search", "search_preview"), item="search_call"))
    async def search(self, query: str) -> str:
        """Search."""
        return f"found {query}"


class Rival(Provider):
    name = "rival"

    @function(hosted=Hosted(types=("search", "rival_search")))
    async def rival_search(self, query: str) -> str:
        """Search elsewhere."""
        return f"rival found {query}"

    @route("GET", "/v1/rival/{name}")
    async def show(self, name: str) -> dict[str, str]:
        """Show."""
        return {"name": name}


async def test_a_function_is_registered_plainly_and_stays_a_plain_callable() -> None:
    registry = FunctionRegistry()
    assert registry.register(add) is add
    assert add(1, 2) == 3
    assert (await registry.execute("add", {"a": 1, "b": 2})).output == "3"


async def test_the_decorator_with_options_keeps_the_function() -> None:
    registry = FunctionRegistry()

    @registry.register(name="plus", description="Add.", scope="core", idempotent=True, timeout=3)
    def anything(a: int) -> int:
        return a + 1

    spec = registry.get("plus")
    assert (spec.description, spec.scope, spec.idempotent, spec.limits.timeout) == ("Add.", "core", True, 3)
    assert anything(1) == 2


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (Searching, {}, r"register an object, not the class: Searching\(\)"),
        (3, {}, "a int cannot be registered"),
        (FunctionSpec("f", "Do.", {}, print), {"timeout": 1}, "options .* go into the spec itself"),
        (FunctionSpec("f", "Do.", {}), {}, "'f' has no handler"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_the_cure(target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        FunctionRegistry().register(target, **options)


def test_a_description_given_as_option_replaces_the_docstring() -> None:
    def undocumented(a: int) -> int:
        return a

    registry = FunctionRegistry()
    registry.register(undocumented, description="Return it.")
    assert registry.get("undocumented").description == "Return it."


def test_a_provider_is_registered_once() -> None:
    registry = FunctionRegistry()
    registry.register(Searching())
    with pytest.raises(DefinitionError, match="'searching' is registered already"):
        registry.register(Searching())


async def test_a_shadowed_function_takes_over_when_the_first_is_unregistered() -> None:
    registry = FunctionRegistry()
    registry.register({"name": "search", "description": "Mine.", "parameters": {}, "handler": lambda params: "mine"})
    registry.register(Searching())
    assert (await registry.execute("search", {})).output == "mine"
    registry.unregister("search")
    assert (await registry.execute("search", {"query": "x"})).output == "found x"


def test_a_providers_function_cannot_be_unregistered_on_its_own() -> None:
    registry = FunctionRegistry()
    registry.register(Searching())
    with pytest.raises(UnknownFunctionError, match="belongs to provider 'searching'; disable the provider"):
        registry.unregister("search")


async def test_the_first_of_a_name_wins_whatever_was_registered_before_it(caplog: pytest.LogCaptureFixture) -> None:
    class Early(Provider):
        @function
        async def f(self) -> str:
            """Come first."""
            return "provider"

    async def late() -> str:
        """Come second."""
        return "function"

    registry = FunctionRegistry()
    registry.register(late, name="other")
    registry.register(Early())
    registry.register(late, name="f")
    assert "function 'f' is registered by 'early' and again by 'custom'; the first one, of 'early'" in caplog.text
    for _ in range(2):
        assert (await registry.execute("f", {})).output == "provider"
        assert [spec.name for spec in registry.list()] == ["other", "f"]
        registry.disable("other")
        registry.enable("other")


def test_tool_types_are_answered_by_the_first_and_the_conflict_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    registry = FunctionRegistry()
    registry.register(Searching())
    with caplog.at_level(logging.WARNING):
        registry.register(Rival())
    assert "tool type 'search' is registered by 'searching' and again by 'rival'" in caplog.text
    for tool_type, name in (("search", "search"), ("search_preview", "search"), ("rival_search", "rival_search")):
        found = registry.for_tool_type(tool_type)
        assert found is not None
        assert found.name == name
    registry.disable("searching")
    assert registry.for_tool_type("search") is None
    assert registry.for_tool_type("unheard_of") is None


def test_routes_that_answer_the_same_requests_are_a_conflict(caplog: pytest.LogCaptureFixture) -> None:
    class Copy(Provider):
        @route("GET", "/v1/rival/{other_name}")
        async def show(self, other_name: str) -> dict[str, str]:
            """Show."""
            return {"copy": other_name}

    registry = FunctionRegistry()
    registry.register(Rival())
    with caplog.at_level(logging.WARNING):
        registry.register(Copy())
    assert "route GET /v1/rival/{other_name} is registered by 'rival' and again by 'copy'" in caplog.text


async def test_one_function_of_a_provider_can_be_disabled() -> None:
    class Two(Provider):
        @function
        async def one(self) -> str:
            """Do."""
            return "one"

        @function
        async def two(self) -> str:
            """Do."""
            return "two"

    registry = FunctionRegistry()
    registry.register(Two())
    registry.disable("one")
    assert [spec.name for spec in registry.list()] == ["two"]
    with pytest.raises(UnknownFunctionError):
        registry.get("one")
    with pytest.raises(UnknownFunctionError, match="no provider or function 'tow'; did you mean 'two'"):
        registry.disable("tow")


class Resource(Provider):
    """Writes down its life."""

    uses = Counter("uses_total", "Uses.")

    def __init__(self, name: str, log: list[str], fail: str = "") -> None:
        super().__init__()
        self.name = name
        self.log = log
        self.fail = fail

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        if self.fail == "open":
            raise OSError("cannot open")
        self.log.append(f"{self.name} opened")
        yield
        self.log.append(f"{self.name} closed")
        if self.fail == "close":
            raise OSError("cannot close")

    @function
    async def use(self) -> str:
        """Use it."""
        return self.name


async def test_providers_are_started_in_order_and_closed_in_reverse() -> None:
    log: list[str] = []
    registry = FunctionRegistry()
    registry.register(Resource("a", log))
    registry.register(Resource("b", log))
    async with registry:
        assert log == ["a opened", "b opened"]
    assert log == ["a opened", "b opened", "b closed", "a closed"]
    await registry.close()
    assert len(log) == 4


async def test_a_provider_that_cannot_start_is_named_and_the_others_are_closed_again() -> None:
    log: list[str] = []
    registry = FunctionRegistry()
    registry.register(Resource("a", log))
    registry.register(Resource("b", log, fail="open"))
    with pytest.raises(ConfigError, match=r"providers\.b could not be started: OSError: cannot open"):
        await registry.start()
    assert log == ["a opened", "a closed"]


async def test_a_provider_that_cannot_close_does_not_keep_the_others_open(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    registry = FunctionRegistry()
    registry.register(Resource("a", log))
    registry.register(Resource("b", log, fail="close"))
    async with registry:
        pass
    assert log[-1] == "a closed"
    assert "provider 'b' did not close cleanly" in caplog.text


async def test_a_function_of_a_provider_that_was_not_started_says_so() -> None:
    registry = FunctionRegistry()
    registry.register(Resource("a", []))
    result = await registry.execute("use", {})
    assert result.status == "unavailable"
    assert "is not started (`async with registry`)" in result.output
    async with registry:
        assert (await registry.execute("use", {})).output == "a"
    assert (await registry.execute("use", {})).status == "unavailable"


def test_metrics_of_a_provider_that_clash_leave_nothing_behind() -> None:
    class Clash(Provider):
        fine = Counter("fine_total", "Fine.")
        taken = Counter(full_name="antwort_resource_uses_total", documentation="Taken.")

    registry = FunctionRegistry()
    registry.register(Resource("resource", []))
    with pytest.raises(DefinitionError, match="antwort_resource_uses"):
        registry.register(Clash())
    assert "antwort_clash_fine" not in registry.metrics.render(None)[0].decode()
    assert [registration.name for registration in registry.registrations()] == ["resource"]


async def test_two_apps_live_in_one_process() -> None:
    log: list[str] = []
    one = Antwort(Config(), functions=[add], providers=[Resource("resource", log)])
    two = Antwort(Config(), providers=[Resource("resource", log)])
    async with one, two:
        assert (await one.registry.execute("add", {"a": 1, "b": 2})).output == "3"
        assert (await two.registry.execute("add", {"a": 1, "b": 2})).status == "unknown"
        provider = one.registry.registrations()[1].provider
        assert isinstance(provider, Resource)
        provider.uses.inc()
    assert "antwort_resource_uses_total 1.0" in one.metrics.render(None)[0].decode()
    assert "antwort_resource_uses_total 0.0" in two.metrics.render(None)[0].decode()


async def test_handlers_may_ask_for_the_context_or_not() -> None:
    registry = FunctionRegistry()

    @registry.register
    async def who(ctx: Context) -> str:
        """Tell the tenant."""
        return ctx.tenant

    assert (await registry.execute("who", {})).output == "default"
    assert (await registry.execute("who", {}, Context("acme"))).output == "acme"


def test_a_function_that_was_marked_keeps_its_options_when_it_is_registered_on_its_own() -> None:
    @function(idempotent=True, timeout=3)
    def marked() -> str:
        """Do something."""
        return "x"

    registry = FunctionRegistry()
    registry.register(marked, timeout=5)
    spec = registry.get("marked")
    assert (spec.idempotent, spec.limits.timeout) == (True, 5)


class Finding(Provider):
    """Finds what it has while it runs."""

    name = "finding"

    @function
    async def known(self) -> str:
        """Say what is known."""
        return "known"

    @override
    def can_execute(self, name: str) -> bool:
        return True

    def find(self, *names: str) -> None:
        offer = self.services.offer
        assert offer is not None
        offer([FunctionSpec(name, f"Is {name}.", {}, handler=lambda: "found") for name in names])


async def test_a_provider_offers_what_it_finds_in_the_place_of_what_it_has_found_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Finding()
    async with Antwort(Config(data_dir=tmp_path, providers={}), providers=[provider]) as app:
        registry = app.registry

        def names() -> list[str]:
            return [spec.name for spec in registry.list()]

        provider.find("one", "two")
        assert names() == ["known", "one", "two"]
        assert (await registry.execute("two", {})).output == "found"
        version = registry.tools_version
        provider.find("two", "three", "known")
        assert registry.tools_version > version
        assert names() == ["known", "two", "three"]
        assert "'known' is registered by 'finding' and again by 'finding'" in caplog.text
        assert (await registry.execute("one", {})).status == "unknown"
        assert (await registry.execute("known", {})).output == "known"
        registry.disable("finding")
        provider.find("four")
        assert names() == []
        registry.enable("finding")
        assert names() == ["known", "four"]


def test_only_who_is_registered_offers_something() -> None:
    with pytest.raises(DefinitionError, match="before it is registered"):
        FunctionRegistry().offer("finding", [])
