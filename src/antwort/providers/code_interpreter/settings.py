"""What an operator can set."""

from typing import Literal, get_args

from pydantic import PositiveFloat, PositiveInt

from antwort.provider import BadRequestError, Duration, Field, SandboxLimits, Settings

MemoryLimit = Literal["1g", "4g", "16g", "64g"]
MEMORY_LIMITS: tuple[MemoryLimit, ...] = get_args(MemoryLimit)


def memory_bytes(limit: str | None) -> int | None:
    """Return the bytes of a step; None if none is named."""
    return int(limit.removesuffix("g")) << 30 if limit in MEMORY_LIMITS else None


def memory_name(size: int) -> MemoryLimit | None:
    """Return the largest step that so much memory has; None if it is less than the smallest."""
    fitting = [limit for limit in MEMORY_LIMITS if (memory_bytes(limit) or 0) <= size]
    return fitting[-1] if fitting else None


def check_memory(limit: str | None, most: int, param: str) -> None:
    """Refuse a step that is more than a container can have; BadRequestError names the largest one."""
    if (memory_bytes(limit) or 0) <= most:
        return
    largest = memory_name(most)
    allowed = "no value of it can be had" if largest is None else f"'{largest}' is the largest that can be had"
    raise BadRequestError(
        f"'{param}' is '{limit}', but {allowed} here. Leave it out to have {most:,} bytes.", param=param
    )


class CodeInterpreterSettings(Settings):
    """Which Python it is, what code may use, and how long sessions and containers are kept."""

    python: str = Field(
        default="python3",
        min_length=1,
        description="The interpreter: a name within the sandbox, or the path of one that has numpy and the like.",
    )
    keep: Duration = Field(
        default=86_400.0, gt=0, description="Time after its last use that a container is kept, with its files."
    )
    idle: Duration = Field(
        default=1200.0, gt=0, description="Time after its last call that a session is kept, with its variables."
    )
    max_sessions: PositiveInt = Field(default=8, description="Sessions of a tenant at the same time.")
    max_wait: Duration = Field(
        default=60.0, gt=0, description="Time that a call waits for a session when all of the tenant are at work."
    )
    max_containers: PositiveInt = Field(default=1000, description="Containers of a tenant.")
    max_time: Duration = Field(default=60.0, gt=0, description="Time that a call may take.")
    max_memory: PositiveInt = Field(default=1 << 30, description="Bytes of memory that a session may use.")
    max_processes: PositiveInt = Field(default=64, description="Processes and threads of a session.")
    cpus: PositiveFloat = Field(
        default=1.0, description="Processors that a session may use; without control groups, whole ones."
    )
    max_output: PositiveInt = Field(default=1 << 20, description="Bytes that a call may print; then it is stopped.")
    max_bytes: PositiveInt = Field(default=512 << 20, description="Bytes of all files of a container.")
    max_files: PositiveInt = Field(default=5000, description="Files and folders of a container.")
    max_file_bytes: PositiveInt = Field(default=128 << 20, description="Bytes of one file.")
    concurrency: PositiveInt = Field(default=8, description="Calls at the same time; further ones wait.")

    @property
    def keep_minutes(self) -> int:
        """Whole minutes that a container is kept, as clients name them."""
        return max(1, int(self.keep // 60))

    def limits(self, memory: int | None = None) -> SandboxLimits:
        """Return what a session may use; less memory if it asks for less."""
        return SandboxLimits(
            seconds=self.max_time,
            cpus=self.cpus,
            memory=min(memory or self.max_memory, self.max_memory),
            processes=self.max_processes,
            file_bytes=self.max_file_bytes,
            disk_bytes=self.max_bytes,
            disk_files=self.max_files,
            output_bytes=self.max_output,
        )
