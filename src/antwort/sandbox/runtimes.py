"""Which sandbox the operator has chosen, by the name that settings have for it.

All keep one contract, that of `Sandbox`: `prepare`, `adopt`, `run` and `open`, whose processes are each a
`SandboxProcess`. A further one overrides how a process is started.
"""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from antwort.sandbox.oci import OciSandbox
from antwort.sandbox.sandbox import BareHost, Sandbox


def _checked(runtime: str) -> str:
    if runtime not in {"bubblewrap", "runsc", "unsafe"} and not (runtime.startswith("/") and runtime != "/"):
        raise ValueError(f"'{runtime}' is none; use bubblewrap, runsc, unsafe, or a path, as that of crun or runc")
    return runtime


SandboxRuntime: TypeAlias = Annotated[str, AfterValidator(_checked)]
"""What settings take: a name, or the path of a runtime that takes bundles of the OCI, as runc and crun do."""


def sandbox_of(runtime: SandboxRuntime, bubblewrap: Sandbox) -> Sandbox:
    """Return the sandbox of a runtime, for providers whose settings have one; the server's own is `bubblewrap`."""
    if runtime == "bubblewrap":
        return bubblewrap
    if runtime == "unsafe":
        return BareHost()
    other = OciSandbox(runtime, bubblewrap.rules, bubblewrap.mounts)
    other.disks = bubblewrap.disks
    return other
