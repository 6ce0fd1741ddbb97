"""The settings of the client for the world outside."""

import pytest
from pydantic import ValidationError

from antwort.config import OutboundConfig


@pytest.mark.parametrize(
    "entry", ["intranet.example", "intranet.example:81", "10.0.0.5", "10.0.0.5:80", "10.0.0.0/8", "::1", "[::1]:80"]
)
def test_a_host_a_port_of_it_an_address_or_a_network_can_be_allowed(entry: str) -> None:
    assert OutboundConfig(allow=[entry]).allow == [entry]


@pytest.mark.parametrize("entry", ["", "http://a.org", "a.org/path", "a.org:0", "a.org:99999", "a b", "10.0.0.0/99"])
def test_anything_else_is_refused(entry: str) -> None:
    with pytest.raises(ValidationError, match="is no host, host:port, address or network"):
        OutboundConfig(allow=[entry])
