"""Defaults that are settings and arguments of classes at once, each written here and nowhere else.

Whoever uses a part without a configuration, such as the registry as a library, has what a configuration that says
nothing would give.
"""

from typing import Literal

from msgspec import Struct


class FunctionDefaults(Struct, frozen=True, kw_only=True):
    """The limits of functions that do not set their own, and those of all functions and providers."""

    timeout: float | None = 60.0
    """Seconds a call may take."""
    max_output: int = 100_000
    """Characters of a result that reach the model."""
    spill: int | None = 4000
    """Characters of a result above which it becomes a variable, where the model can follow a reference."""
    max_referenced: int = 16 * 1024**2
    """Bytes that the references in the arguments of a call may stand for."""
    threads: int = 32
    """Threads of one provider."""
    grace: float = 1.0
    """Seconds a call has to end after it was cancelled; then nobody waits for it any more."""
    max_hanging: int = 16
    """Calls of one function that may go on after their time; with so many, no further one is begun."""
    start_timeout: float | None = 120.0
    """Seconds a provider may take to start."""
    close_timeout: float | None = 15.0
    """Seconds a provider may take to close."""
    concurrency: int | None = None
    """Calls of one function that run at the same time."""


class StorageDefaults(Struct, frozen=True, kw_only=True):
    """How the databases are used."""

    synchronous: Literal["normal", "full"] = "normal"
    """SQLite: what a commit survives, a crash of the process or one of the machine."""
    busy_timeout: float = 5.0
    """SQLite: seconds to wait for a process that holds the database."""
    pool_size: int = 8
    """PostgreSQL: connections at the same time."""
    reconnect: float = 10.0
    """PostgreSQL: seconds to wait for a server that is away."""


class TenantDefaults(Struct, frozen=True, kw_only=True):
    """What one tenant may take."""

    max_value_bytes: int = 100 * 1024**2
    """The largest value of a variable."""
    max_file_bytes: int = 512 * 1024**2
    """The largest file that is uploaded."""


FUNCTIONS = FunctionDefaults()
STORAGE = StorageDefaults()
TENANTS = TenantDefaults()
