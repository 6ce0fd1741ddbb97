import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from typing_extensions import override

from antwort import testing
from antwort.provider import BaseModel, ConfigError, Context, Field, Provider, function, route
from antwort.testing import AppFactory


class Greeting(BaseModel):
    name: str


class Greeter(Provider):
    """Greets, and knows on which thread its life began."""

    home = 0

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self.home = threading.get_ident()
        yield

    @function
    async def greet(self, ctx: Context, name: Annotated[str, Field(min_length=1)] = "you") -> str:
        """Greet somebody by name."""
        assert threading.get_ident() == self.home
        return f"{ctx.tenant} greets {name}"

    @route("POST", "/v1/greetings", status=201)
    async def post(self, ctx: Context, greeting: Greeting) -> dict[str, str]:
        """Greet somebody by name."""
        return {"text": f"{ctx.tenant} greets {greeting.name}"}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_the_plug_in_loads_nothing_of_weight() -> None:
    program = "import sys, antwort.testing.plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    own = {name for name in loaded if name.partition(".")[0] == "antwort"}
    assert own == {"antwort", "antwort.testing", "antwort.testing.plugin"}
    assert not {"pydantic", "starlette", "uvicorn", "prometheus_client", "click"} & set(loaded)


def test_every_name_of_the_kit_can_be_had() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    assert dir(testing) == testing.__all__
    with pytest.raises(AttributeError, match="no attribute 'Provider'"):
        _ = testing.Provider


def test_the_fixture_starts_an_app_on_a_socket(antwort_app: AppFactory) -> None:
    served = antwort_app(functions=[add])
    answer = served.get("/v1/functions")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert [found["name"] for found in answer.json()["data"]][:3] == ["add", "calculate", "current_time"]
    assert served.call("add", {"a": 2, "b": 3}).value == 5


def test_a_mapping_is_read_like_a_configuration_file(antwort_app: AppFactory) -> None:
    config = {"providers": {}, "auth": {"api_keys": [{"id": "one", "key": "secret-one", "tenant": "acme"}]}}
    served = antwort_app(config, providers=[Greeter()])
    assert served.request("POST", "/v1/greetings", body={"name": "Ada"}).status == 401
    answer = served.request("POST", "/v1/greetings", key="secret-one", body={"name": "Ada"})
    assert (answer.status, answer.json()) == (201, {"text": "acme greets Ada"})


def test_functions_are_called_on_the_loop_of_the_app_for_a_tenant(antwort_app: AppFactory) -> None:
    served = antwort_app(providers=[Greeter()])
    assert served.call("greet").output == "default greets you"
    assert served.call("greet", '{"name": "Ada"}', Context("acme")).output == "acme greets Ada"
    assert served.call("greet", {"name": ""}).status == "invalid_arguments"


def test_several_apps_run_at_once_and_keep_their_data_apart_from_the_working_folder(antwort_app: AppFactory) -> None:
    first, second = antwort_app(functions=[add]), antwort_app({"providers": {}})
    assert first.url != second.url
    assert second.get("/v1/functions").json()["data"] == []
    assert first.app.config.data_dir.is_absolute()


def test_a_configuration_that_cannot_be_used_is_raised(antwort_app: AppFactory) -> None:
    with pytest.raises(ConfigError, match=r"providers\.nothing: unknown provider type"):
        antwort_app({"providers": {"nothing": {"enabled": True}}})


def test_the_app_stops_at_the_end_of_its_block() -> None:
    provider = Greeter()
    config: dict[str, Any] = {"providers": {}}
    with testing.served(config, providers=[provider]) as served:
        assert served.get("/healthz").status == 200
        before = provider.started
    assert (before, provider.started) == (True, False)
    with pytest.raises(ConnectionRefusedError):
        served.get("/healthz")
