"""What the registry promises whoever writes functions, providers and programs: slips of the pen are told, not taken."""

import asyncio
import enum
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import pytest

from antwort import Antwort, FunctionRegistry, FunctionSpec
from antwort.config import Config, load_config
from antwort.context import Context
from antwort.engine.tools.toolsets import ToolsetBuilder
from antwort.errors import ConfigError, DefinitionError, StateError
from antwort.provider import Provider, Route, function, route
from antwort.testing import ScriptedBackend, turn
from antwort.testing.apps import running

ANY = cast("Any", function)
ANY_ROUTE = cast("Any", route)
EXAMPLES = Path(__file__).parents[1] / "config" / "examples"


async def handler() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: ANY(time_out=3),
        lambda: cast("Any", FunctionRegistry()).register(handler, time_out=3),
        lambda: cast("Any", FunctionRegistry()).register(time_out=3),
        lambda: FunctionSpec.of(handler, cast("Any", {"time_out": 3})),
    ],
)
def test_an_option_that_there_is_not_is_an_error_that_names_the_one_that_is_meant(mistake: Callable[[], Any]) -> None:
    with pytest.raises(DefinitionError, match="has no option 'time_out'; did you mean 'timeout'"):
        mistake()


def test_an_option_that_resembles_none_is_an_error_that_lists_them_all() -> None:
    with pytest.raises(DefinitionError, match="@function has no option 'nonsense'; there are agents, approval, attach"):
        ANY(nonsense=1)


def test_routes_and_registrations_refuse_what_they_do_not_know() -> None:
    with pytest.raises(DefinitionError, match="@route has no option 'sumary'; did you mean 'summary'"):
        ANY_ROUTE("GET", "/v1/x", sumary="X")
    with pytest.raises(
        DefinitionError, match="to register provider 'plain' has no option 'ofer'; did you mean 'offer'"
    ):
        cast("Any", FunctionRegistry()).register(Plain(), ofer="always")
    with pytest.raises(DefinitionError, match="offer 'never' is not one of always, deferred, on_request"):
        cast("Any", FunctionRegistry()).register(Plain(), offer="never")
    with pytest.raises(DefinitionError, match="offer 'never' is not one of always, deferred, on_request"):
        cast("Any", FunctionSpec)("f", "Do.", offer="never")


class Plain(Provider):
    """Nothing wrong with it."""


def without_self(city: str) -> str:
    """Forecast the weather."""
    return city


def without_anything() -> str:
    """Do something."""
    return "done"


async def asking(ctx: Context) -> str:
    """Ask."""
    return ctx.tenant


@pytest.mark.parametrize("method", [without_self, without_anything, asking])
@pytest.mark.parametrize("mark", [function, route("GET", "/v1/forgetful")])
def test_a_method_without_self_is_an_error_that_says_so(method: Callable[..., Any], mark: Callable[..., Any]) -> None:
    @functools.wraps(method)
    def copied(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    with pytest.raises(
        DefinitionError, match=r"Forgetful.ask is a method and .*: put `self` first, or make it a @static"
    ):
        type("Forgetful", (Provider,), {"ask": mark(copied)})


async def test_static_and_class_methods_and_what_decorators_make_of_methods_need_no_self() -> None:
    def handing_on(method: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        inner.__name__, inner.__doc__ = method.__name__, method.__doc__
        return inner

    class Fine(Provider):
        @function
        @staticmethod
        def static(city: str) -> str:
            """Do."""
            return city

        @function
        @classmethod
        def of_class(cls, city: str) -> str:
            """Do."""
            return cls.__name__ + city

        @route("GET", "/v1/fine")
        @handing_on
        def fine(self) -> None:
            """Do."""

    registry = FunctionRegistry()
    registry.register(FunctionSpec("own", "Do.", {}, lambda params: "own"))
    provider = Fine()
    assert [spec.name for spec in provider.tools()] == ["static", "of_class"]


# --- configuration ------------------------------------------------------------------------------------------------


def test_an_unknown_provider_type_is_an_error_also_if_it_is_disabled(tmp_path: Path) -> None:
    file = tmp_path / "antwort.yaml"
    file.write_text("providers:\n  web_serch:\n    enabled: false\n")
    with pytest.raises(ConfigError, match=r"antwort\.yaml:2: .*unknown provider type; did you mean 'web_search'"):
        Antwort(load_config(file, environ={}))


@pytest.mark.parametrize(
    ("use", "doubt"),
    [
        ("not_installed:Mine", "there is no module 'not_installed'; is it installed, and on PYTHONPATH?"),
        ("parcel.absent:Mine", "there is no module 'parcel.absent'; is it installed, and on PYTHONPATH?"),
        ("parcel.inner.deep:Mine", "'parcel.inner' is a module, not a package, so there is no 'parcel.inner.deep'"),
        ("parcel.inner:Mime", "module 'parcel.inner' has no 'Mime'; did you mean 'Mine'?"),
        ("parcel.inner:Mine", None),
        ("parcel.open:Anything", None),
        ("__main__:Mine", None),
        ("math:Mine", None),
    ],
)
def test_a_disabled_provider_that_leads_nowhere_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, use: str, doubt: str | None
) -> None:
    folder = tmp_path / "parcel"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('nobody imports what is disabled')\n")
    (folder / "inner.py").write_text("raise RuntimeError\nclass Mine: ...\n")
    (folder / "open.py").write_text("from elsewhere import *\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "antwort.yaml"
    file.write_text(f"providers:\n  mine:\n    enabled: false\n    use: {use}\n")
    Antwort(load_config(file, environ={}))
    told = f"{file}:2: providers.mine is disabled, and could not be enabled: use: {doubt}"
    assert caplog.messages == ([] if doubt is None else [told])


async def test_the_example_of_the_registrys_specification_starts_as_printed(tmp_path: Path) -> None:
    loaded = load_config(EXAMPLES / "registry.yaml", environ={"ANTWORT_DATA_DIR": str(tmp_path)})
    async with Antwort(loaded) as app:
        assert [registration.name for registration in app.registry.registrations()] == [
            "web_search",
            "file_search",
            "files",  # which file search brings
        ]


# --- routes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_an_answer_that_json_cannot_express_is_a_failure_of_the_route(
    number: float, caplog: pytest.LogCaptureFixture
) -> None:
    class Numbers(Provider):
        @route("GET", "/v1/numbers")
        async def numbers(self) -> dict[str, Any]:
            """Return a number that is none."""
            return {"number": [number]}

        @route("GET", "/v1/words")
        async def words(self) -> dict[str, str]:
            """Return words that look like it."""
            return {"NaN": "Infinity"}

    with running(Antwort(Config(providers={}), providers=[Numbers()])) as app:
        answer = httpx.get(f"{app.url}/v1/numbers")
        assert httpx.get(f"{app.url}/v1/words").json() == {"NaN": "Infinity"}
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "route GET /v1/numbers of provider 'numbers' failed" in caplog.text
    assert "NaN or an infinite number" in caplog.text


def test_conflicts_of_routes_are_warned_about_once_with_both_names(caplog: pytest.LogCaptureFixture) -> None:
    class First(Provider):
        @route("GET", "/v1/things/{name}")
        @route("GET", "/v1/things/{name}/parts")
        async def things(self, name: str) -> str:
            """Get a thing."""
            return name

    class Second(Provider):
        @route("GET", "/v1/things/{path:path}")
        async def everything(self, path: str) -> str:
            """Get everything."""
            return path

        @route("GET", "/v1/things/{name}")
        async def again(self, name: str) -> str:
            """Get a thing again."""
            return name

    registry = FunctionRegistry()
    registry.register(First())
    registry.register(Second())
    for _ in range(2):
        registry.reserve([Route("GET", "/v1/things/{name}", handler)])
    messages = [record.getMessage() for record in caplog.records]
    overlap = "route GET /v1/things/{path:path} of 'second' answers requests that GET /v1/things/{name}"
    same = "route GET /v1/things/{name} is registered by '%s' and again by '%s'; the first one, of '%s', is used"
    assert messages == [
        f"{overlap}/parts of 'first' and 1 more was registered for first; the first one is used",
        same % ("first", "second", "first"),
        same % ("antwort", "first", "antwort"),
        f"{overlap} of 'antwort' was registered for first; the first one is used",
        same % ("antwort", "second", "antwort"),
    ]


# --- what a model reads -------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Single(enum.Enum):
    ONLY = "only"


async def test_enums_are_shown_to_the_model_with_their_values() -> None:
    registry = FunctionRegistry()

    @registry.register
    async def paint(
        colour: Colour, size: Size | None = None, single: Single = Single.ONLY, kind: Literal["oil"] = "oil"
    ) -> str:
        """Paint."""
        return f"{colour} {size} {single} {kind}"

    result = await registry.execute("paint", {"colour": "blue"})
    assert result.status == "invalid_arguments"
    assert result.output.endswith(
        "Expected: colour (one of 'red', 'green', required), size (one of 1, 2 or null, optional), "
        "single ('only', optional), kind ('oil', optional)."
    )


# --- what is offered ----------------------------------------------------------------------------------------------


def test_what_a_provider_offers_on_request_is_offered_on_request() -> None:
    class Mixed(Provider):
        @function(offer="on_request")
        async def seldom(self) -> str:
            """Answer seldom."""
            return ""

        @function
        async def often(self) -> str:
            """Answer often."""
            return ""

    registry = FunctionRegistry()
    registry.register(Mixed())
    toolsets = ToolsetBuilder([registry])
    ctx = Context("t", scopes=frozenset({"*"}))
    assert list(toolsets.build([], ctx).targets) == ["often"]
    assert list(toolsets.build([{"type": "function", "name": "seldom"}], ctx).targets) == ["seldom", "often"]
    other = FunctionRegistry()
    other.register(Mixed(), offer="on_request")
    assert list(ToolsetBuilder([other]).build([], ctx).targets) == []


# --- programs -----------------------------------------------------------------------------------------------------


async def test_an_app_that_is_not_running_says_so() -> None:
    app = Antwort(backend=ScriptedBackend([turn("Hello.")]))
    with pytest.raises(StateError, match="the app is not running; use `async with app:`"):
        await app.run("Hi.")
    async with app:
        with pytest.raises(StateError, match="the app was started already"):
            await app.start()
        assert (await app.run("Hi.")).status == "completed"
    with pytest.raises(StateError, match="the app is not running"):
        await app.run("Hi.")
    with pytest.raises(StateError, match="the app was closed; make a new one"):
        await app.start()


async def test_an_app_that_is_starting_is_not_started_again() -> None:
    app = Antwort(backend=ScriptedBackend([]))
    results = await asyncio.gather(app.start(), app.start(), return_exceptions=True)
    await app.close()
    assert [type(result) for result in results] == [type(None), StateError]
