"""The filter of system calls: what programs need, and nothing else. A layer behind namespaces.

It is a program for the kernel's filter machine, without a library: compare the number of the call, maybe look at an
argument, and allow or refuse. Arguments are 64 bits wide; of those looked at here only the lower half matters.
"""

import errno
import functools
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from antwort.sandbox.memory import SHARED
from antwort.sandbox.system_calls import EXAMINED, FILES, MEMORY, PROCESSES, REFUSED, SOCKETS, WAITING, numbers

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
"""From this number on calls are those of another ABI, which would go round the filter."""
_NAMESPACES = 0x7E020000
"""The flags of `clone` for all new namespaces."""
_UNIX, _STREAM, _TYPE = 1, 1, 0xF
"""A socket of UNIX is a stream: datagrams of many senders would wait at one receiver, and take its memory."""
_FAMILIES = {False: (), True: (2, 10, 16)}
"""Other families of sockets, without and with a network: IPv4, IPv6, netlink."""
_BUFFERS = (7, 8, 32, 33)
"""SO_SNDBUF, SO_RCVBUF and their `FORCE`: buffers stay as large as they are."""
_SOL_SOCKET = 1
_FCNTL = (10, 1024, 1026, 1031)
"""F_SETSIG would wake who was stopped, by SIGCONT; F_SETLEASE lets others wait for a file, the server too; F_NOTIFY
signals what others do; F_SETPIPE_SZ makes pipes take more memory."""
_IOCTL = ((0x5400, 0x5411), (0x5413, 0x541B), (0x541E, 0x5422), (0x5424, 0x545F), (0x8900, 0x89FF))
"""What concerns terminals and open files, but for TIOCSTI, TIOCLINUX, TIOCCONS and TIOCSETD, which reach terminals of
others or drivers that nobody needs; and what concerns sockets."""
_IOCTL_PTY = ((0x40045431, 0x40045431), (0x80045430, 0x80045430), (0x802C542A, 0x802C542A), (0x402C542B, 0x402C542D))
"""TIOCSPTLCK, TIOCGPTN, TCGETS2 and what sets it."""
_TERMINAL = (0x5412, 0x541C, 0x541D, 0x5423)
_PERSONALITIES = (0, 0xFFFFFFFF)
"""The usual one, and to ask which it is."""
_PRCTL = (1, 0x59616D61)
"""PR_SET_PDEATHSIG would wake who was stopped, too; PR_SET_PTRACER lets others into a process."""
_SET_DUMPABLE = 4
"""PR_SET_DUMPABLE hides what a process holds."""
_THREAD, _SHARING_FILES = 0x10000, 0x400
"""CLONE_THREAD and CLONE_FILES: a thread has the open files of its process, where they are looked for."""
_ONE, _FIRST = 0, 1
"""PRIO_PROCESS, which is for one process only; the number of the first one."""
_SHARED_ANONYMOUS = 0x21
"""MAP_SHARED and MAP_ANONYMOUS: memory that stays where hardly any of it is mapped, so that nobody sees it."""

_LOAD, _MASK, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4

Instruction = tuple[int, int, int, int]
_PASS: Final[Instruction] = (_RETURN, 0, 0, _ALLOW)


def _argument(index: int) -> Instruction:
    return _LOAD, 0, 0, 16 + 8 * index


def _upper_half(index: int) -> Instruction:
    return _LOAD, 0, 0, 20 + 8 * index


def _refuse(error: int) -> Instruction:
    return _RETURN, 0, 0, _ERROR | error


def _when(number: int, then: Sequence[Instruction]) -> Sequence[Instruction]:
    """Do something if this was loaded, which has to return; go on behind it for others."""
    return [(_EQUAL, 0, len(then), number), *then]


def _within(ranges: Iterable[tuple[int, int]], then: Instruction) -> Iterator[Instruction]:
    """Return something if what was loaded is in one of the ranges; go on behind them for others."""
    for first, last in ranges:
        yield from ((_AT_LEAST, 0, 2, first), (_ABOVE, 1, 0, last), then)


def _among(values: Iterable[int], then: Instruction) -> Iterator[Instruction]:
    return _within(_ranges(values), then)


def _ranges(values: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges that some numbers make up."""
    first = last = None
    for value in sorted(values):
        if first is None or last is None:
            first = value
        elif value != last + 1:
            yield first, last
            first = value
        last = value
    if first is not None and last is not None:
        yield first, last


def _not_first(then: Instruction) -> Sequence[Instruction]:
    """Return something if the first process was loaded; others pass."""
    return [*_when(_FIRST, [then]), _PASS]


def _examinations(*, network: bool, counted: bool) -> Iterator[tuple[str, Sequence[Instruction]]]:
    """Yield the calls whose arguments matter, with what looks at them and returns."""
    not_permitted = _refuse(errno.EPERM)
    threads = [(_ANY_BIT, 0, 2, _THREAD), (_ANY_BIT, 1, 0, _SHARING_FILES), not_permitted]
    yield "clone", [_argument(0), (_ANY_BIT, 0, 1, _NAMESPACES), not_permitted, *threads, _PASS]
    yield "fcntl", [_argument(1), *_among(_FCNTL, not_permitted), _PASS]
    terminals = [*_among(_TERMINAL, not_permitted), *_within((*_IOCTL, *_IOCTL_PTY), _PASS)]
    yield "ioctl", [_argument(1), *terminals, _refuse(errno.ENOTTY)]
    yield "personality", [_argument(0), *_among(_PERSONALITIES, _PASS), not_permitted]
    hiding = () if counted else _when(_SET_DUMPABLE, [_refuse(0)])
    yield "prctl", [_argument(0), *_among(_PRCTL, not_permitted), *hiding, _PASS]
    # The first process, which ends all others, is as quick as the server: nobody lets it stand back.
    yield "setpriority", [_argument(0), (_EQUAL, 1, 0, _ONE), not_permitted, _argument(1), *_not_first(not_permitted)]
    for call in ("sched_setattr", "sched_setparam", "sched_setscheduler"):
        yield call, [_argument(0), *_not_first(not_permitted)]
    # It is told that all is well: the kernel, too, gives less than it is asked for without a word.
    buffers = [_argument(2), *_among(_BUFFERS, _refuse(0)), _PASS]
    yield "setsockopt", [_argument(1), *_when(_SOL_SOCKET, buffers), _PASS]
    streams = [_argument(1), (_MASK, 0, 0, _TYPE), *_when(_STREAM, [_PASS]), _refuse(errno.ESOCKTNOSUPPORT)]
    families = [*_when(_UNIX, streams), *_among(_FAMILIES[network], _PASS), _refuse(errno.EAFNOSUPPORT)]
    for call in ("socket", "socketpair"):
        yield call, [_argument(0), *families]


def _uncounted(*, counted: bool, pinned: bool) -> Iterator[tuple[str, Sequence[Instruction]]]:
    """Yield calls that take memory which only the kernel can count, or take it on more processors than they may."""
    too_large = _refuse(errno.ENOMEM)
    length = [_upper_half(1), (_EQUAL, 1, 0, 0), too_large, _argument(1), (_ABOVE, 0, 1, SHARED), too_large, _PASS]
    shared = [_argument(3), (_MASK, 0, 0, _SHARED_ANONYMOUS), *_when(_SHARED_ANONYMOUS, length), _PASS]
    yield "mmap", [_PASS] if counted else shared
    for call in ("sendfile", "splice"):  # a pipe or socket would keep large parts of files for each of its pages
        yield call, [_PASS if counted else _refuse(errno.EINVAL)]
    not_permitted = _refuse(errno.EPERM)
    choosing = [_argument(0), *_not_first(not_permitted)] if counted and not pinned else [not_permitted]
    yield "sched_setaffinity", choosing


@functools.cache  # it takes as long as a part of a start, and is the same for all
def filter_program(
    *, network: bool, counted: bool = True, pinned: bool = False, machine: str | None = None
) -> bytes | None:
    """Return the filter for this kind of processor, or a given one; None if there is none for it.

    If the kernel has not `counted` the memory of all processes together, some calls are not allowed that take such. Who
    is `pinned` to certain processors does not choose others; where memory is not counted, everybody is.
    """
    machine = machine or os.uname().machine
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
    ]
    examined = numbers(EXAMINED, machine)
    examinations = _examinations(network=network, counted=counted)
    for call, examination in (*examinations, *_uncounted(counted=counted, pinned=pinned)):
        program += _when(examined[call], examination)
    needed = [
        number for calls in (FILES, WAITING, MEMORY, PROCESSES, SOCKETS) for number in numbers(calls, machine).values()
    ]
    program += _among(needed, _PASS)
    program += _among(numbers(REFUSED, machine).values(), _refuse(errno.EPERM))
    program.append(_refuse(errno.ENOSYS))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
