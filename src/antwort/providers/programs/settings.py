"""Settings of the provider `programs`."""

from typing import Literal

from antwort.provider import Duration, Field, Settings

_MB = 1024**2


class ProgramsSettings(Settings):
    """What runs programs, and what a program may take."""

    interpreter: Literal["monty", "sandbox", "auto"] = Field(
        default="monty",
        description="What runs programs: a small interpreter of its own, Python in the sandbox, or the first and, for "
        "programs that it does not understand, the second.",
    )
    python: str = Field(
        default="python3",
        min_length=1,
        description="The Python of `sandbox` and `auto`: a name within the sandbox, or the path of one.",
    )
    seconds: Duration = Field(
        default=10.0, gt=0, description="Time that a program may compute; waiting for calls does not count."
    )
    max_memory: int = Field(default=64 * _MB, ge=_MB, description="Bytes of memory that a program and its names take.")
    max_recursion: int = Field(default=200, ge=10, le=1000, description="How deep functions may call each other.")
    max_calls: int = Field(default=2000, ge=1, description="Calls that one program may make.")
    max_printed: int = Field(
        default=1_000_000,
        ge=1000,
        description="Characters that a program may print, its last value included; what is more is left out.",
    )
    max_part: int = Field(
        default=1_000_000, ge=1000, description="Bytes of a variable that a program can read at once."
    )
    max_snapshot: int = Field(
        default=8 * _MB, ge=0, description="Bytes of a program's state up to which it is kept while the program waits."
    )
    processes: int = Field(default=8, ge=1, description="Programs that compute at the same time.")
