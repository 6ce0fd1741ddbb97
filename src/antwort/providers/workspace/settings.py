"""What an operator can set."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from antwort.provider import Duration, Field, SandboxLimits, SandboxRuntime, Settings


class WorkspaceSettings(Settings):
    """Whose workspaces there are, how long they are kept, and what commands in them may use."""

    sandbox: SandboxRuntime = Field(
        default="bubblewrap",
        description="Where commands run: `bubblewrap`, `runsc`, which is gVisor, or the path of another runtime of the "
        "OCI; `unsafe` is the bare host, as the server's own user.",
    )
    per: Literal["conversation", "run"] = Field(
        default="conversation", description="What has a workspace of its own; a chain of responses is a conversation."
    )
    keep: Duration = Field(default=7 * 86_400.0, gt=0, description="Time after its last use that a workspace is kept.")
    max_workspaces: PositiveInt = Field(default=1000, description="Workspaces of a tenant.")
    max_bytes: PositiveInt = Field(default=512 << 20, description="Bytes of all files of a workspace.")
    max_files: PositiveInt = Field(default=20_000, description="Files and folders of a workspace.")
    max_file_bytes: PositiveInt = Field(default=128 << 20, description="Bytes of one file.")
    max_time: Duration = Field(default=60.0, gt=0, description="Time that a command may take.")
    max_memory: PositiveInt = Field(default=1 << 30, description="Bytes of memory that a command may use.")
    max_processes: PositiveInt = Field(default=64, description="Processes and threads of a command.")
    cpus: PositiveFloat = Field(
        default=1.0, description="Processors that a command may use; without control groups, whole ones."
    )
    max_output: PositiveInt = Field(
        default=4 << 20, description="Bytes that a command may write, errors included; then it is ended."
    )
    max_read: PositiveInt = Field(default=100_000, ge=1000, description="Bytes that `read_file` returns at most.")
    concurrency: PositiveInt = Field(default=8, description="Commands at the same time; further ones wait.")
    network: bool = Field(
        default=False, description="Whether commands have the network of the host, with all that it can reach."
    )

    def limits(self, seconds: float | None = None, memory: int | None = None) -> SandboxLimits:
        """Return what a command may use, or less if it asks for less."""
        return SandboxLimits(
            seconds=min(seconds or self.max_time, self.max_time),
            cpus=self.cpus,
            memory=min(memory or self.max_memory, self.max_memory),
            processes=self.max_processes,
            file_bytes=self.max_file_bytes,
            disk_bytes=self.max_bytes,
            disk_files=self.max_files,
            output_bytes=self.max_output,
        )
