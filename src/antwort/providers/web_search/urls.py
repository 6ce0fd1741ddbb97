"""URLs and domains: one spelling for each, so that the same page counts once."""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_DOMAIN = re.compile(r"(?=.{1,253}$)[\w-]{1,63}(?:\.[\w-]{1,63})*")
_TRACKING = re.compile(r"utm_\w+|gclid|fbclid|msclkid|dclid|yclid|igshid|mc_[ce]id", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNQUOTED = "%/:=&?~#+!$,;'@()*[]"


def normalised(url: str) -> str | None:
    """Return a web address in its one spelling: without fragment, tracking and default port; None if it is none."""
    url = url.strip()
    if _CONTROL.search(url):  # urlsplit would just drop some of these
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not host or parts.username is not None or re.search(r"[\s<>\"\\]", host):
        return None
    netloc = f"[{host}]" if ":" in host else host.rstrip(".")
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        netloc = f"{netloc}:{port}"
    query = parts.query
    if _TRACKING.search(query):
        query = urlencode([pair for pair in parse_qsl(query, True) if not _TRACKING.fullmatch(pair[0])])
    return urlunsplit((scheme, netloc, quote(parts.path or "/", _UNQUOTED), quote(query, _UNQUOTED), ""))


def domain(text: str) -> str | None:
    """Return a domain in lower case; None if the text is none."""
    name = text.strip().lower().removeprefix("*.").strip(".")
    return name if _DOMAIN.fullmatch(name) else None


def within(host: str, domains: Iterable[str]) -> bool:
    """Tell whether a host is one of some domains, or below one."""
    host = host.lower().rstrip(".")
    return any(host == name or host.endswith(f".{name}") for name in domains)
