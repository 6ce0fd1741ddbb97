"""The hosts a server answers to: the guard against strangers' names that point at it."""

import ipaddress
import re
from collections.abc import Iterable, Mapping

from starlette.types import Scope

from antwort.config import ServerConfig
from antwort.errors import BadRequestError, PermissionDeniedError
from antwort.lazy_imports import compiled_on_use

_HOST = compiled_on_use(r"(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>[\w.-]{1,253}?)\.?)(?::\d{0,5})?", re.ASCII)
_REMEMBERED = 256
"""Headers whose check is spared when they come again; ports and subdomains are the clients' to invent."""
_SHOWN = 100


class AllowedHosts:
    """Names, `*.` and a domain for all names below it, addresses and networks, or `*` for all; ports do not matter.

    A web page can have its own name point at the address of a server after it was loaded (DNS rebinding). The browser
    then takes the two for one site and lets the page read everything. The name in `Host` is still the page's.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._known: set[bytes] = set()
        self._all = False
        for entry in entries:
            self._all = self._all or entry == "*"
            name = entry.lower().strip("[]").removesuffix(".")
            try:
                self._networks.append(ipaddress.ip_network(name, strict=False))
            except ValueError:
                self._names.add(name)
        self._domains = tuple(name[1:] for name in self._names if name.startswith("*."))

    @classmethod
    def of(cls, settings: ServerConfig) -> "AllowedHosts":
        """Return what the settings allow."""
        return cls(settings.allowed_hosts or ["*"])

    def check(self, scope: Scope, named: Mapping[bytes, bytes]) -> None:
        """Refuse a request to another host: PermissionDeniedError, or BadRequestError if it does not name just one.

        One of HTTP/1.0 need not name any. `named` are the headers by name.
        """
        headers, host = scope["headers"], named.get(b"host")
        if len(named) == len(headers) and (host in self._known or (self._all and host is not None)):
            return  # as nearly always: none of them is there twice
        given = [value for name, value in headers if name == b"host"]
        if not given and scope.get("http_version") == "1.0":
            # The header came with HTTP/1.1, and simple probes send none. What is guarded against is a page in a
            # browser: browsers speak HTTP/1.1 or later, always name the host, and no page can leave it out.
            return
        if len(given) != 1:
            raise BadRequestError(f"A request needs one Host header, and this one has {len(given) or 'none'}.")
        if not self._all and given[0] not in self._known:
            self._check_name(given[0])

    def _check_name(self, given: bytes) -> None:
        """Refuse a host that is not among those answered to, and remember one that is."""
        text = given.decode("latin-1")
        found = _HOST.fullmatch(text.lower())
        name = None if found is None else found["v6"] or found["name"]
        if name is None or not self._has(name):
            # 403, not 421: there is no other server to try, and OpenAI's clients know this status.
            raise PermissionDeniedError(
                f"This server does not answer to the host '{_printable(name or text)}'."
                " If that is a name of it, its operator can add it to server.allowed_hosts.",
                code="host_not_allowed",
            )
        if len(self._known) < _REMEMBERED:
            self._known.add(given)

    def _has(self, name: str) -> bool:
        if name in self._names or name.endswith(self._domains):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:_SHOWN]
