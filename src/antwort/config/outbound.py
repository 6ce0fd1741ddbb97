"""Settings of the client for the world outside."""

import ipaddress
import re
from typing import Literal

from pydantic import ByteSize, Field, PositiveInt, field_validator

from antwort.config.durations import Duration
from antwort.config.settings import Settings

__all__ = ["OutboundConfig"]

_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?")


class OutboundConfig(Settings):
    """What functions may reach when a model, a client or a web page names a URL."""

    allow: list[str] = Field(
        default_factory=list,
        description="Hosts and networks that are reached though not public: intranet.example, 10.0.0.5:80, 10.0.0.0/8.",
    )
    low_ports: list[int] = Field(
        default_factory=lambda: [80, 443], description="Ports below 1024 that may be reached; higher ones all may."
    )
    timeout: Duration = Field(default=20.0, description="Time a request may take, redirects included.")
    max_bytes: ByteSize = Field(
        default=ByteSize(5 * 1024 * 1024), gt=0, description="Largest answer, compressed or not."
    )
    model_urls: Literal["public", "any", "none"] = Field(
        default="public",
        description="URLs in requests that a model server may fetch: public ones and those of `allow`, any, or none.",
    )
    max_connections: PositiveInt = Field(default=100, description="Connections at the same time.")

    @field_validator("allow")
    @classmethod
    def _are_hosts_or_networks(cls, entries: list[str]) -> list[str]:
        for entry in entries:
            if not is_network(entry):
                found = _HOST.fullmatch(entry)
                if found is None or not 0 < int(found["port"] or 1) < 65536:
                    raise ValueError(f"'{entry}' is no host, host:port, address or network")
        return entries


def is_network(entry: str) -> bool:
    """Tell whether an entry is an address or a network, rather than a host."""
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return True
