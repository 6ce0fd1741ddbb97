"""What an operator can set."""

from pydantic import PositiveFloat, PositiveInt

from antwort.provider import Duration, Field, SandboxLimits, Settings


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
