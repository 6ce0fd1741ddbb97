"""Authentication by JSON Web Token, signed by an issuer whose public keys are known."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import jwt
from starlette.datastructures import Headers

from antwort.auth.base import credential
from antwort.concurrency.single_flight import SingleFlight
from antwort.config import JwtConfig
from antwort.context import Principal
from antwort.context.http_client import HttpAnswer, OutboundError, OutboundTimeoutError, TooLargeError
from antwort.errors import AuthenticationError, ConfigError, ServiceUnavailableError
from antwort.outbound import Outbound

logger = logging.getLogger(__name__)


MAX_BYTES = 1 << 20
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})

KeySource = Callable[[], Mapping[str, Any]]
"""Loads a JSON Web Key Set, blocking."""
RETRY_INTERVAL = 10.0
"""Seconds between two attempts to load keys, however many tokens with unknown keys arrive."""
PUBLIC_KEY_TYPES = ("RSA", "EC", "OKP")
"""The set is public: a symmetric key in it would let everybody sign."""


class KeysUnavailableError(Exception):
    """The keys cannot be loaded. A client may read the problem; where it lies is for the operator only."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.problem = problem


def from_file(path: Path) -> KeySource:
    """Load the key set from a file."""

    def load() -> Mapping[str, Any]:
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise KeysUnavailableError(f"the file cannot be read ({reason})", str(path)) from error
        return _parse(content, str(path))

    return load


def from_url(url: str, *, timeout: float) -> KeySource:
    """Load the key set from a URL."""

    def load() -> Mapping[str, Any]:
        return _fetch(url, timeout)

    return load


def from_issuer(issuer: str, *, timeout: float) -> KeySource:
    """Load the key set that an OpenID Connect issuer names in its discovery document."""
    discovery = f"{issuer.rstrip('/')}/.well-known/openid-configuration"

    def load() -> Mapping[str, Any]:
        found = _fetch(discovery, timeout)
        if found.get("issuer") != issuer:
            raise KeysUnavailableError("the discovery document is of another issuer", _public(discovery))
        url = found.get("jwks_uri")
        if not isinstance(url, str) or not may_follow(issuer, url):
            raise KeysUnavailableError("the discovery document has no usable 'jwks_uri'", _public(discovery))
        return _fetch(url, timeout)

    return load


def may_follow(origin: str, url: str) -> bool:
    """Tell whether one URL may lead to another: only over the web, and whoever starts encrypted stays encrypted."""
    return urlsplit(url).scheme in ({"https"} if urlsplit(origin).scheme == "https" else {"http", "https"})


def _fetch(url: str, timeout: float) -> Mapping[str, Any]:
    """Load a document, on a thread of its own: an answer that is dear to read is not read on the server's loop."""
    try:
        answer = asyncio.run(_asked(url, timeout))
    except OutboundTimeoutError as error:
        raise KeysUnavailableError("the issuer did not answer in time", _public(url)) from error
    except TooLargeError as error:
        raise KeysUnavailableError(f"the answer is larger than {MAX_BYTES} bytes", _public(url)) from error
    except (OutboundError, ConfigError, ValueError) as error:
        raise KeysUnavailableError("the issuer cannot be reached", _public(url)) from error
    if answer.status != 200:
        raise KeysUnavailableError(f"the issuer answered {answer.status}", _public(url))
    return _parse(answer.body, _public(url))


async def _asked(url: str, seconds: float) -> HttpAnswer:
    """Ask for a document, where redirects lead to, too, as far as they may be followed; all of it in time."""
    client = Outbound(proxies=True)
    end = time.monotonic() + seconds
    try:
        for left_redirects in range(MAX_REDIRECTS, -1, -1):
            if not may_follow("", url):
                raise KeysUnavailableError("neither an http nor an https URL", _public(url))
            left = max(0.001, end - time.monotonic())
            headers = {"accept": "application/json"}
            answer = await client.call("GET", url, headers=headers, time_limit=left, max_bytes=MAX_BYTES)
            target = urljoin(url, answer.headers.get("location", ""))
            is_redirect = answer.status in REDIRECTS and "location" in answer.headers and may_follow(url, target)
            if not is_redirect or not left_redirects:
                return answer
            url = target
        raise AssertionError("the last answer is returned, whatever it is")
    finally:
        await client.close()


def _parse(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise KeysUnavailableError("not JSON", where) from None
    if not isinstance(document, dict):
        raise KeysUnavailableError("not a JSON object", where)
    return document


def _public(url: str) -> str:
    """Return a URL without user, password and query, which may be secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class KeySet:
    """The keys of one issuer: loaded when first needed, after `refresh` seconds, and when a token names an unknown one.

    Requests that come together share one load. When loading fails, the keys of before stay in force.
    """

    def __init__(
        self,
        source: KeySource,
        algorithms: Sequence[str],
        *,
        refresh: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._algorithms = tuple(algorithms)
        self._refresh = refresh
        self._clock = clock
        self._keys: tuple[jwt.PyJWK, ...] = ()
        self._loaded: float | None = None
        self._tried: float | None = None
        self._problem: str | None = None
        self._loading = SingleFlight(self._load)

    def load(self) -> None:
        """Load the keys now, blocking; raise `KeysUnavailableError` when that fails."""
        self._adopt(self._read())

    async def find(self, key_id: str | None, algorithm: str) -> list[jwt.PyJWK]:
        """Return the keys that may have signed a token; without an id, every key of the algorithm.

        Raise `ServiceUnavailableError` while no key is known at all.
        """
        if self._loaded is None or self._clock() - self._loaded >= self._refresh:
            # An issuer that failed last time must not slow down requests that the known keys can serve.
            await self._update(wait=self._problem is None or not self._match(key_id, algorithm))
        if not self._match(key_id, algorithm):
            await self._update(wait=True)
        if not self._keys:
            raise ServiceUnavailableError(
                f"The token cannot be verified because the issuer's keys are not available: {self._problem}.",
                headers={"retry-after": f"{RETRY_INTERVAL:.0f}"},
            )
        return self._match(key_id, algorithm)

    async def close(self) -> None:
        """Give up a load that is under way."""
        await self._loading.close()

    def _match(self, key_id: str | None, algorithm: str) -> list[jwt.PyJWK]:
        fitting = [key for key in self._keys if key.algorithm_name == algorithm]
        return [key for key in fitting if key_id is None or key.key_id in (None, key_id)]

    async def _update(self, *, wait: bool) -> None:
        if not self._loading.is_under_way:
            now = self._clock()
            if self._tried is not None and now - self._tried < RETRY_INTERVAL:
                return
            self._tried = now
            self._loading.begin()
        if wait:
            await self._loading.outcome()

    async def _load(self) -> None:
        try:
            self._adopt(await asyncio.to_thread(self._read))
        except KeysUnavailableError as error:
            self._problem = error.problem
            effect = "the keys of before stay in force" if self._keys else "no token can be verified"
            logger.error("Cannot load the keys of a token issuer, so %s: %s.", effect, error)  # noqa: TRY400

    def _read(self) -> tuple[jwt.PyJWK, ...]:
        keys = tuple(_usable(self._source(), self._algorithms))
        if not keys:
            raise KeysUnavailableError(f"no key is usable for {', '.join(self._algorithms)}", "the key set")
        return keys

    def _adopt(self, keys: tuple[jwt.PyJWK, ...]) -> None:
        self._keys, self._loaded, self._problem = keys, self._clock(), None


def _usable(document: Mapping[str, Any], algorithms: Sequence[str]) -> Iterator[jwt.PyJWK]:
    """Yield each key once for every algorithm it may verify; skip the others, as RFC 7517 asks."""
    entries = document.get("keys")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") not in PUBLIC_KEY_TYPES or entry.get("use") == "enc":
            continue
        for algorithm in algorithms:
            if entry.get("alg", algorithm) != algorithm:
                continue
            try:
                yield jwt.PyJWK(entry, algorithm)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                logger.debug("A key in the set is not one for %s.", algorithm)


JWT_PATTERN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")

MESSAGES: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "The token has expired. Get a new one.",
    jwt.ImmatureSignatureError: "The token is not valid yet. Compare the clocks of issuer and server.",
    jwt.InvalidAudienceError: "The token is for the wrong audience.",
    jwt.InvalidIssuerError: "The token is of the wrong issuer.",
    jwt.InvalidAlgorithmError: "The token is signed with an algorithm that is not accepted.",
    jwt.InvalidSignatureError: "The signature of the token is not valid.",
    jwt.InvalidKeyError: "The signature of the token cannot be verified: its key is too weak or of the wrong kind.",
}


class JwtAuthenticator:
    """Accept the tokens of one issuer; abstain from those of others, so that several can stand in a chain."""

    def __init__(self, config: JwtConfig, *, timeout: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._keys = KeySet(_source(config, timeout), config.algorithms, refresh=config.refresh, clock=clock)
        if config.jwks_file is not None:
            # A file is the operator's own: what is wrong with it must stop the start, not the first request.
            try:
                self._keys.load()
            except KeysUnavailableError as error:
                raise ConfigError(
                    f"The issuer's keys cannot be used: {error.problem}. Put its JSON Web Key Set into this file.",
                    where=str(config.jwks_file),
                ) from error

    async def authenticate(self, headers: Headers, /) -> Principal | None:
        """Return whom the token stands for; abstain when there is no token of this issuer."""
        token = credential(headers)
        unverified = _peek(token) if token else None
        if token is None or unverified is None or unverified["payload"].get("iss") != self._config.issuer:
            return None
        return self._principal(await self._verify(token, unverified["header"]))

    async def holder(self, _tenant: str, _key_id: str, /) -> Principal | None:
        """Know no keys: a token is in force until it expires, and nobody hears of it before."""
        return None

    def describe(self) -> str:
        """Name it to the operator, with the issuer."""
        return f"JWT ({self._config.issuer})"

    async def close(self) -> None:
        """Stop loading keys."""
        await self._keys.close()

    async def _verify(self, token: str, header: Mapping[str, Any]) -> Mapping[str, Any]:
        algorithm, key_id = header.get("alg"), header.get("kid")
        # Before the keys are asked for: a token nobody could accept must not make us call the issuer.
        if not isinstance(algorithm, str) or algorithm not in self._config.algorithms:
            raise AuthenticationError(
                f"{MESSAGES[jwt.InvalidAlgorithmError]} Sign it with {' or '.join(self._config.algorithms)}."
            )
        rejection = AuthenticationError("The signature of the token cannot be verified: its key is not known.")
        for key in await self._keys.find(key_id, algorithm):
            try:
                return self._decode(token, key)
            except jwt.InvalidSignatureError as error:
                rejection = _rejection(error)
            except jwt.PyJWTError as error:
                raise _rejection(error) from None
        raise rejection

    def _decode(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=self._config.algorithms,
            audience=self._config.audience,
            issuer=self._config.issuer,
            leeway=self._config.leeway,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        return claims

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        return Principal(
            tenant=_name(claims, self._config.tenant_claim),
            subject=_name(claims, self._config.subject_claim),
            scopes=_scopes(claims, self._config.scope_claim).union(self._config.scopes),
            method="jwt",
        )


def _source(config: JwtConfig, timeout: float) -> KeySource:
    if config.jwks_file is not None:
        return from_file(config.jwks_file)
    name, url = ("issuer", config.issuer) if config.jwks_url is None else ("jwks_url", config.jwks_url)
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ConfigError(
            "The issuer's keys are loaded from here, so it must be an http or https URL. "
            "Correct it, or set 'jwks_url' or 'jwks_file'.",
            where=f"auth.jwt.{name}",
        )
    return (from_issuer if config.jwks_url is None else from_url)(url, timeout=timeout)


def _peek(token: str) -> dict[str, Any] | None:
    """Return header and claims of a token without believing them, or None when it is not a JWT."""
    if JWT_PATTERN.fullmatch(token) is None:
        return None
    try:
        return jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None


def _rejection(error: jwt.PyJWTError) -> AuthenticationError:
    """Say what is wrong in our own words: those of the library may quote the token."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return AuthenticationError(f"The token has no '{error.claim}' claim.")
    for kind, message in MESSAGES.items():
        if isinstance(error, kind):
            return AuthenticationError(message)
    return AuthenticationError("The token is not valid.")


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name or, for nested ones, by a dotted path; names that are URLs have dots of their own."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _name(claims: Mapping[str, Any], path: str) -> str:
    value = _claim(claims, path)
    if not isinstance(value, str) or not value.strip():
        raise AuthenticationError(f"The token has no usable '{path}' claim: it must be a string and not empty.")
    return value


def _scopes(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    value = _claim(claims, path)
    if value is None:
        return frozenset()
    names = value.split() if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AuthenticationError(f"The '{path}' claim of the token must be a string or a list of strings.")
    return frozenset(names)
