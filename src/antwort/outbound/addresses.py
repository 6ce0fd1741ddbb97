"""What may be reached: which URLs, which addresses are public, and which others the operator allows."""

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from antwort.context.http_client import BlockedError, UnreachableError
from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    import yarl
else:  # most servers never read a URL of a stranger
    yarl = imported_on_use("yarl")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNICAST6 = ipaddress.IPv6Network("2000::/3")
"""All that was ever given out as global unicast."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
# Spelt out, because what the standard library knows of them depends on its version.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # the host agent of a cloud, on an address that looks public
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
            "2001::/23",
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
"""Networks that are not of the public internet, besides all IPv6 that is not global unicast."""

_LONGEST = 4096
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
"""What no URL has, and what parsers disagree about."""


_NEAR = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
"""What names end with that mean something here only."""


def is_public(address: str) -> bool:
    """Tell whether an address, and every address inside it, is a unicast address of the public internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    inner = list(_embedded(found))
    if inner:
        return all(is_public(str(one)) for one in inner)
    if isinstance(found, ipaddress.IPv6Address) and found not in _UNICAST6:
        return False
    return not any(found in network for network in _SPECIAL if network.version == found.version)


def _embedded(address: Address) -> Iterator[Address]:
    """Yield the IPv4 addresses that an IPv6 address stands for: mapped, compatible, NAT64, 6to4, Teredo."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64 or address in _COMPATIBLE:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def may_be_near(host: str) -> bool:
    """Tell whether a host is an address, in whichever way it is written, or a name that no public host has."""
    last = host.rpartition(".")[2]
    is_address = ":" in host or last.isdigit() or last.lower().startswith("0x")
    return is_address or "." not in host or f".{host.lower()}".endswith(_NEAR)


class NotConnectedError(UnreachableError):
    """No connection came about; another address may be tried."""


class Allowed:
    """What the operator allows besides public addresses: hosts, hosts with one port, addresses and networks."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks: list[Network] = []
        self._hosts: set[tuple[str, int | None]] = set()
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                host, _, port = entry.rpartition(":")
                named = (host, int(port)) if host else (entry, None)
                self._hosts.add((named[0].strip("[]").lower().rstrip("."), named[1]))

    def host(self, host: str, port: int) -> bool:
        """Tell whether a host may be reached whatever its address is."""
        return self.port(host, port) or (host, None) in self._hosts

    def port(self, host: str, port: int) -> bool:
        """Tell whether this very port of a host was named."""
        return (host, port) in self._hosts

    def address(self, address: str) -> bool:
        """Tell whether an address lies in a network that was named."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks if network.version == found.version)


def read_url(text: str) -> "yarl.URL":
    """Return a URL that may be asked for as far as its text tells, or raise BlockedError."""
    if len(text) > _LONGEST or _FORBIDDEN.search(text):
        raise BlockedError(f"'{printable(text)}' is not a URL.")
    try:
        url = yarl.URL(text)
        host, port = url.raw_host, url.port
    except ValueError:
        raise BlockedError(f"'{printable(text)}' is not a URL.") from None
    if url.scheme not in {"http", "https"}:
        raise BlockedError(f"'{printable(text)}' may not be opened: only http and https URLs may.")
    if not host or not host.strip(".") or "%" in host or not port:
        raise BlockedError(f"'{printable(text)}' names no host.")
    if url.raw_user is not None or url.raw_password is not None:
        raise BlockedError("A URL with a user name or password in it may not be opened.")
    return url.with_fragment(None)


def check_port(host: str, port: int, allowed: Allowed, low_ports: Collection[int]) -> None:
    """Raise BlockedError for a port of some other protocol."""
    if port < 1024 and port not in low_ports and not allowed.port(host, port):
        raise BlockedError(f"Port {port} of '{printable(host)}' may not be reached.")


def printable(text: str) -> str:
    """Return a URL or host as a message may show it."""
    plain = _FORBIDDEN.sub("?", text)
    return plain if len(plain) <= 200 else f"{plain[:200]}…"


def capitalized(words: str) -> str:
    """Return words as they stand at the beginning of a sentence."""
    return words[:1].upper() + words[1:]
