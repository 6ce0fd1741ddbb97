"""Who is calling: authenticators, the chain of them, API keys and rate limits."""

from antwort.auth.base import Anonymous, Authenticator, Chain, credential
from antwort.auth.build import (
    allowed_hosts,
    api_keys,
    build_authenticator,
    check_bind,
    is_anonymous,
    keys_file,
    shows_console,
)
from antwort.auth.keys import ApiKey, ApiKeyAuthenticator, KeyFile, hash_key
from antwort.auth.limits import Logins, RateLimiter

__all__ = [
    "Anonymous",
    "ApiKey",
    "ApiKeyAuthenticator",
    "Authenticator",
    "Chain",
    "KeyFile",
    "Logins",
    "RateLimiter",
    "allowed_hosts",
    "api_keys",
    "build_authenticator",
    "check_bind",
    "credential",
    "hash_key",
    "is_anonymous",
    "keys_file",
    "shows_console",
]
