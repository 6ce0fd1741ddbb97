"""Which sandbox the operator has chosen, by the name that settings have for it.

All keep one contract, that of `Sandbox`: `prepare`, `adopt`, `run` and `open`, whose processes are each a
`SandboxProcess`. A further one overrides how a process is started. Each is made from its settings and the server's own.
"""

from typing import Annotated, TypeAlias

from antwort.config import Choice, ExtensionKind, Settings
from antwort.sandbox.oci import OciSandbox
from antwort.sandbox.sandbox import BareHost, Sandbox


def _is_path(runtime: str) -> bool:
    return runtime.startswith("/") and runtime != "/"


SANDBOXES: ExtensionKind[Sandbox] = ExtensionKind(
    "antwort.sandboxes",
    "sandbox",
    default="bubblewrap",
    members=("prepare", "adopt", "run", "open"),
    also=_is_path,
    also_known="or a path, as that of crun or runc",
)
SandboxRuntime: TypeAlias = Annotated[Choice, SANDBOXES]
"""What settings take: a name, or the path of a runtime that takes bundles of the OCI, as runc and crun do."""


def sandbox_of(runtime: SandboxRuntime, bubblewrap: Sandbox) -> Sandbox:
    """Return the sandbox of a runtime, for providers whose settings have one; the server's own is `bubblewrap`."""
    if isinstance(runtime, str) and _is_path(runtime):
        return _by_runtime(runtime, bubblewrap)
    return SANDBOXES.make(runtime, bubblewrap, key="sandbox")


def bubblewrap(settings: Settings, own: Sandbox) -> Sandbox:  # noqa: ARG001 - it has none
    """Return the server's own."""
    return own


def runsc(settings: Settings, own: Sandbox) -> Sandbox:  # noqa: ARG001 - it has none
    """Return gVisor."""
    return _by_runtime("runsc", own)


def unsafe(settings: Settings, own: Sandbox) -> Sandbox:  # noqa: ARG001 - it has none, and confines nothing
    """Return the bare host."""
    return BareHost()


def _by_runtime(program: str, own: Sandbox) -> Sandbox:
    other = OciSandbox(program, own.rules, own.mounts)
    other.disks = own.disks
    return other
