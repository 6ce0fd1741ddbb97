"""From the configuration to the chain of authenticators, and the checks that nobody serves the world by accident."""

import ipaddress
import shlex
import socket
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from antwort.auth.base import Anonymous, Chain
from antwort.auth.keys import ApiKey, ApiKeyAuthenticator, KeyFile, hash_key
from antwort.config import ApiKeyConfig, Config
from antwort.config.load import DEFAULT_FILE
from antwort.errors import ConfigError
from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    from antwort.auth import jwt
else:  # its library is needed by servers with an issuer only
    jwt = imported_on_use("antwort.auth.jwt")

_THIS_MACHINE = ("localhost", "*.localhost", "127.0.0.0/8", "::1")


def build_authenticator(config: Config) -> Chain:
    """Return the authenticators the configuration asks for; raise `ConfigError` when it asks for none it has."""
    if is_anonymous(config):
        return Chain([Anonymous()])
    if not _has_source(config):
        raise ConfigError(
            "Authentication is required, but there is nothing to authenticate with. "
            "Create a key with 'antwort keys new', or configure 'auth.api_keys' or 'auth.jwt'.",
            where="auth.mode",
        )
    keys = api_keys(config)
    if config.auth.jwt is None:
        return Chain([keys], has_several_tenants=keys.has_several_tenants)
    return Chain([keys, jwt.JwtAuthenticator(config.auth.jwt)], has_several_tenants=True)


def api_keys(config: Config) -> ApiKeyAuthenticator:
    """Return what takes the API keys of the configuration and those of its file."""
    return ApiKeyAuthenticator([_record(entry) for entry in config.auth.api_keys], keys_file(config))


def is_anonymous(config: Config) -> bool:
    """Tell whether the server takes requests without credentials."""
    return config.auth.mode == "none" or (config.auth.mode == "auto" and not _has_source(config))


def keys_file(config: Config) -> KeyFile:
    """Return the file that `antwort keys` writes and the server reads."""
    return KeyFile(config.auth.keys_file or config.data_dir / "keys.json")


def _addresses(name: str) -> Iterable[str]:
    """Return the addresses of a host name; none when it cannot be resolved."""
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None)]
    except (OSError, UnicodeError):
        return []


def check_bind(
    config: Config, *, file: Path | None = None, resolve: Callable[[str], Iterable[str]] = _addresses
) -> None:
    """Refuse to serve without authentication where other machines can reach it, unless the operator says so.

    `file` is the one that the configuration was read from: the cure that is told leads to the keys of this server.
    """
    host = config.server.host
    if config.server.allow_anonymous or not is_anonymous(config) or _is_loopback(host, resolve):
        return
    create = f"create an API key with '{_new_key_command(config, file)}'"
    if config.auth.mode == "none":
        create = f"set 'auth.mode' to 'auto' and {create}"
    raise ConfigError(
        f"Other machines can reach '{host}', and no authentication is configured. "
        f"Either {create}, or allow it with the flag --allow-anonymous.",
        where="server.host",
    )


def _new_key_command(config: Config, file: Path | None) -> str:
    words = ["antwort", "keys", "new"]
    if file is not None and file != Path(DEFAULT_FILE):
        words += ["--config", str(file)]
    if config.data_dir != Config().data_dir:
        words += ["--data-dir", str(config.data_dir)]
    return shlex.join(words)


def allowed_hosts(config: Config, *, resolve: Callable[[str], Iterable[str]] = _addresses) -> list[str]:
    """Return the hosts to answer to where `server.host` is really listened on; none means all of them.

    Those of the configuration, if it has any. Else, without authentication on a loopback address, the names of this
    machine: nothing but the name in a request would tell a web page in its user's browser from the user.
    """
    server = config.server
    if server.allowed_hosts or not is_anonymous(config) or not _is_loopback(server.host, resolve):
        return server.allowed_hosts
    return [*_THIS_MACHINE, server.host]


def shows_console(config: Config, *, resolve: Callable[[str], Iterable[str]] = _addresses) -> bool:
    """Tell whether the console is served where `server.host` is really listened on.

    Not without authentication where other machines can reach it: who allows programs to call need not invite people.
    """
    return config.server.console and (not is_anonymous(config) or _is_loopback(config.server.host, resolve))


def _has_source(config: Config) -> bool:
    """Tell whether there is anything to authenticate with. A file without keys counts: revoking must not open up."""
    return bool(config.auth.api_keys) or config.auth.jwt is not None or _exists(keys_file(config).path)


def _exists(path: Path) -> bool:
    """Tell whether there is a file, or a link to one that is gone. Not being allowed to look is not a no."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(
            f"Cannot look for the file of API keys ({error.strerror}). Let the server's user enter its folder.",
            where=str(path),
        ) from error
    return True


def _record(entry: ApiKeyConfig) -> ApiKey:
    plaintext = entry.key.get_secret_value() if entry.key is not None else None
    where = f"auth.api_keys '{entry.id}'"
    if plaintext is not None and plaintext.split() != [plaintext]:
        raise ConfigError("The key must not contain blanks: no client could send it.", where=where)
    try:
        return ApiKey(
            id=entry.id,
            hash=hash_key(plaintext) if plaintext is not None else (entry.hash or "").lower(),
            tenant=entry.tenant,
            subject=entry.id if entry.subject is None else entry.subject,
            scopes=frozenset(entry.scopes),
            created_at=datetime.now(UTC),
        )
    except ValueError as error:
        raise ConfigError(f"{error}.", where=where) from error


def _is_loopback(host: str, resolve: Callable[[str], Iterable[str]]) -> bool:
    if host.lower() == "localhost":
        return True
    name = host.removeprefix("[").removesuffix("]")
    if not name:
        return False
    if (address := _address(name)) is not None:
        return address.is_loopback
    found = [_address(text) for text in resolve(name)]
    return bool(found) and all(address is not None and address.is_loopback for address in found)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # Until Python 3.13 the loopback of IPv4, written as IPv6, is not recognised as one.
    return getattr(address, "ipv4_mapped", None) or address
