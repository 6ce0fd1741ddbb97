"""Authentication by JSON Web Token, signed by an issuer whose public keys are known."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import jwt
from starlette.datastructures import Headers

from antwort.auth.base import credential
from antwort.auth.jwks import KeySet, KeySource, KeysUnavailableError, from_file, from_issuer, from_url
from antwort.config import JwtConfig
from antwort.context import Principal
from antwort.errors import AuthenticationError, ConfigError

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
