"""What a hosted tool says of itself is checked when its function is defined."""

from typing import Any

import pytest

from antwort.errors import DefinitionError
from antwort.functions import FunctionSpec
from antwort.provider import Hosted, HostedTool


class Weather(HostedTool):
    types = ("weather",)
    item = "weather_call"


def spec(hosted: Any) -> FunctionSpec:
    return FunctionSpec("weather", "Tell the weather.", {}, lambda arguments: "sunny", hosted=hosted)


def test_an_object_is_taken_and_its_class_is_not() -> None:
    assert spec(Weather()).hosted is not None
    with pytest.raises(DefinitionError, match=r"`hosted` is a HostedTool, such as Weather\(\), not <class"):
        spec(Weather)
    with pytest.raises(DefinitionError, match=r"`hosted` is a HostedTool, such as Hosted\(types="):
        spec({"types": ["weather"]})


@pytest.mark.parametrize("item", ["weather_call", "weather_output", "acme:weather", "program"])
def test_types_of_items_that_a_client_can_send_back(item: str) -> None:
    assert Hosted(("weather",), item).item == item


@pytest.mark.parametrize("item", ["weather", "weather_item", "_call", "weather:", "weather call"])
def test_an_item_that_no_client_could_send_back_is_refused(item: str) -> None:
    with pytest.raises(DefinitionError, match="one ends in _call or _output, such as 'tool_call', or has a colon"):
        Hosted(("weather",), item)
