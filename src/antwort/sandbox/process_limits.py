"""What the kernel lets each process take, whatever others take: its resource limits."""

import contextlib
import ctypes
import functools
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from antwort.sandbox.limits import MEBIBYTE, SandboxLimits

_FEW_FILES, _FEW_SIGNALS = 128, 1024
_NO_NEW_RIGHTS = 38
"""PR_SET_NO_NEW_PRIVS."""
_SET_IDS = {"x86_64": (119, 117), "aarch64": (149, 147)}
"""The numbers of `setresgid` and `setresuid`: the functions of these names would change all threads."""


def chosen_limits(limits: SandboxLimits, *, memory_is_counted: bool) -> dict[str, int]:
    """Return what each process may use, by the names of the kernel's limits."""
    chosen = {
        "as": None if memory_is_counted else max(4 * limits.memory, 2 << 30),  # programs reserve more than they use
        "core": 0,
        "cpu": limits.cpu_seconds,
        # Its own memory; a little more than all may have together, so that who takes it little by little is ended.
        "data": None if memory_is_counted else limits.memory + max(limits.memory // 10, 16 * MEBIBYTE),
        "fsize": limits.file_bytes,
        "memlock": 0,
        "msgqueue": 0,
        "nofile": _open_files(limits, memory_is_counted=memory_is_counted),
        "nproc": limits.processes,
        "sigpending": _FEW_SIGNALS,
    }
    return {name: most for name, most in chosen.items() if most is not None}


def _open_files(limits: SandboxLimits, *, memory_is_counted: bool) -> int:
    """Return how many files a process may open: no more than the server may, since nobody but root can raise that.

    What the kernel keeps for each is counted with the memory, or else there are few.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = limits.open_files if memory_is_counted else min(limits.open_files, _FEW_FILES)
    return wanted if most == resource.RLIM_INFINITY else min(wanted, most)


def rlimits(limits: SandboxLimits, *, memory_is_counted: bool) -> Iterator[str]:
    """Yield how the command line begins of what is to have these limits from the start, on the bare host."""
    yield "prlimit"
    for name, most in chosen_limits(limits, memory_is_counted=memory_is_counted).items():
        yield f"--{name}={most}:{most}"
    yield "--"


def limit(processes: Iterable[int], chosen: Mapping[str, int]) -> None:
    """Set limits of processes, which hold for all that these start from then on; OSError if that cannot be done."""
    for process in processes:
        with _allowed(process) as allowed:
            for name, most in chosen.items():
                which = getattr(resource, f"RLIMIT_{name.upper()}")
                _, hard = allowed(process, which)
                least = most if hard == resource.RLIM_INFINITY else min(most, hard)
                allowed(process, which, (least, least))


def hold_private(processes: Iterable[int], most: int) -> None:
    """Let each process take at most so many bytes of its own for now, as far as that is allowed."""
    for process in processes:
        with contextlib.suppress(OSError), _allowed(process) as allowed:  # it is gone, or the system does not allow it
            _, hard = allowed(process, resource.RLIMIT_DATA)
            allowed(process, resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


@contextlib.contextmanager
def _allowed(process: int) -> Iterator[Callable[..., tuple[int, int]]]:
    """Have what asks for and sets limits of a process.

    Where root lacks the capability for it, this thread takes the real ids of the user of that process meanwhile: what
    it may do otherwise goes by the effective ones, and other threads are who they were.
    """
    try:
        resource.prlimit(process, resource.RLIMIT_CORE)
    except PermissionError:
        own = os.getgid(), os.getuid()
        _act_for(*_ids(process))
        try:
            yield resource.prlimit
        finally:
            _act_for(*own)
    else:
        yield resource.prlimit


def _ids(process: int) -> tuple[int, int]:
    """Return the group and the user of a process, which its place in `/proc` does not tell if it is closed."""
    status = Path(f"/proc/{process}/status").read_bytes()
    group, user = (int(status.partition(name)[2].split(maxsplit=1)[0]) for name in (b"\nGid:", b"\nUid:"))
    return group, user


def renounce() -> None:
    """Keep this thread, and what it starts, from rights that a program would give; OSError if that cannot be done."""
    if _libc().prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "new rights cannot be renounced")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _act_for(group: int, user: int) -> None:
    """Take other real ids on this thread alone."""
    call = _libc().syscall
    for number, wanted in zip(_SET_IDS.get(os.uname().machine, ()), (group, user), strict=False):
        if call(number, wanted, -1, -1) != 0:
            raise PermissionError(ctypes.get_errno(), "the ids of another user cannot be taken")
