"""What the guarded client refuses: every way to an address that is not public."""

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outbound.hostile import HOSTILE
from tests.support.site import Reply, Site

from antwort.config.engine import OutboundConfig
from antwort.context.http_client import BlockedError, NoHttpClient, OutboundError
from antwort.outbound import Outbound
from antwort.outbound.addresses import is_public


@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_is_refused(url: str) -> None:
    client = Outbound()
    try:
        with pytest.raises(BlockedError) as caught:
            await client.fetch(url)
    finally:
        await client.close()
    assert caught.value.status == "denied"


async def resolved_to(host: str, *addresses: str, allow: Sequence[str] = ()) -> OutboundError:
    """Fetch a host that has some addresses, and return what went wrong."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    client = Outbound(OutboundConfig(allow=list(allow)), resolve=resolve)
    try:
        with pytest.raises(OutboundError) as caught:
            await client.fetch(f"http://{host}/")
    finally:
        await client.close()
    return caught.value


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["::1"],
        ["fe80::1%eth0"],
        ["::ffff:192.168.1.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
        ["2606:2800:220:1:248:1893:25c8:1946", "fd00::1"],
        ["not an address"],
    ],
)
async def test_a_host_with_an_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    error = await resolved_to("innocent.example", *addresses)
    assert isinstance(error, BlockedError)
    assert "'innocent.example' may not be reached: it is not public" in str(error)
    assert not any(address in str(error) for address in addresses)


async def test_a_host_without_an_address_is_not_there() -> None:
    assert str(await resolved_to("nowhere.example")) == "There is no host 'nowhere.example'."


async def test_dns_that_changes_between_check_and_use_changes_nothing() -> None:
    """The address is resolved once, and the connection goes to the one that was checked."""
    answers = [["127.0.0.1"], ["127.0.0.2"], ["169.254.169.254"]]
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return answers.pop(0)

    with Site({"/": Reply("the checked one")}) as site:
        client = Outbound(OutboundConfig(allow=["127.0.0.1"]), resolve=resolve)
        try:
            answer = await client.fetch(f"http://rebind.example:{site.port}/")
            with pytest.raises(BlockedError):
                await client.fetch(f"http://rebind.example:{site.port}/")
        finally:
            await client.close()
    assert answer.body == b"the checked one"
    assert asked == ["rebind.example"] * 2
    assert [one.headers["host"] for one in site.asked] == [f"rebind.example:{site.port}"]


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.2/",
        "//127.0.0.2/",
        "http://[::ffff:10.0.0.1]/",
        "http://localhost:1/",
        "file:///etc/passwd",
        "http://user:secret@example.org/",
        "http://[broken",
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_checked_anew(location: str, status: int) -> None:
    pages = {"/": Reply(status=status, headers={"location": location})}
    with Site(pages) as site:
        client = Outbound(OutboundConfig(allow=[site.place]))
        try:
            with pytest.raises(BlockedError):
                await client.fetch(site.url)
        finally:
            await client.close()
    assert len(site.asked) == 1


async def test_a_redirect_to_another_port_of_an_allowed_host_is_refused() -> None:
    with Site({"/": Reply("secret")}) as other:
        pages = {"/": Reply(status=302, headers={"location": other.url})}
        with Site(pages) as site:
            client = Outbound(OutboundConfig(allow=[site.place]))
            try:
                with pytest.raises(BlockedError):
                    await client.fetch(site.url)
            finally:
                await client.close()
    assert other.connections == 0


@pytest.mark.parametrize(
    ("allow", "reached"),
    [
        (["127.0.0.1"], True),
        (["127.0.0.0/8"], True),
        (["127.0.0.1:{port}"], True),
        (["::1", "127.0.0.1/32"], True),
        (["127.0.0.1:1"], False),
        (["10.0.0.0/8", "intranet.example"], False),
        ([], False),
    ],
)
async def test_the_operator_can_allow_hosts_ports_and_networks(allow: list[str], reached: bool) -> None:
    with Site({"/": Reply("hello")}) as site:
        client = Outbound(OutboundConfig(allow=[entry.format(port=site.port) for entry in allow]))
        try:
            if reached:
                assert (await client.fetch(site.url)).text() == "hello"
            else:
                with pytest.raises(BlockedError):
                    await client.fetch(site.url)
        finally:
            await client.close()


async def test_an_allowed_host_may_have_any_address() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with Site({"/": Reply("hello")}) as site:
        client = Outbound(OutboundConfig(allow=["Intranet.Example"]), resolve=resolve)
        try:
            assert (await client.fetch(f"http://intranet.example.:{site.port}/")).text() == "hello"
            with pytest.raises(BlockedError):
                await client.fetch(f"http://sub.intranet.example:{site.port}/")
        finally:
            await client.close()


async def test_whoever_asks_can_refuse_hosts_of_the_way() -> None:
    hosts: list[str] = []

    def admit(host: str) -> bool:
        hosts.append(host)
        return host != "localhost"

    with Site({"/": Reply(status=302, headers={"location": "http://localhost/"})}) as site:
        client = Outbound(OutboundConfig(allow=[site.place]))
        try:
            with pytest.raises(BlockedError, match="Pages of 'localhost' may not be opened here"):
                await client.fetch(site.url, admit=admit)
        finally:
            await client.close()
    assert hosts == ["127.0.0.1", "localhost"]


async def test_a_context_without_a_client_refuses_everything() -> None:
    with pytest.raises(BlockedError, match="There is no HTTP client here"):
        await NoHttpClient().fetch("https://example.org/")
    with pytest.raises(BlockedError, match="There is no HTTP client here"):
        await NoHttpClient().call("GET", "https://example.org/")


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_whatever_wraps_an_address_is_as_public_as_it(address: ipaddress.IPv4Address) -> None:
    packed = int(address)
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | packed)
    translated = ipaddress.IPv6Address((0x64FF9B << 96) | packed)
    sixtofour = ipaddress.IPv6Address((0x2002 << 112) | (packed << 80) | 1)
    for wrapped in (mapped, translated, sixtofour):
        assert is_public(str(wrapped)) == is_public(str(address))


@given(st.ip_addresses(v=4) | st.ip_addresses(network="2000::/3"))
def test_no_address_of_a_special_kind_is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if is_public(str(address)) and address not in ipaddress.ip_network("2002::/16"):
        special = ("private", "loopback", "link_local", "multicast", "unspecified", "reserved")
        assert [kind for kind in special if getattr(address, f"is_{kind}")] == []
