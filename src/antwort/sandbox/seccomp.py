"""The filter of system calls: what a sandbox never needs and what has led out of others. A layer behind namespaces.

It is a program for the kernel's filter machine, without a library: compare the number of the call, maybe look at an
argument, and allow or refuse. Arguments are 64 bits wide; of those looked at here only the lower half matters.
"""

import errno
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final

# name: its number on x86-64, and on 64-bit ARM; None where there is no such call.
_REFUSED: Final[dict[str, tuple[int | None, int | None]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
# Whoever is told that these do not exist does without. The first hides its flags from filters; the others are memory
# that belongs to no process, and that nobody could count.
_UNKNOWN: Final[dict[str, tuple[int | None, int | None]]] = {
    "clone3": (435, 435),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "msgget": (68, 186),
    "shmget": (29, 194),
}
_CLONE, _IOCTL = (56, 220), (16, 29)
_SOCKETS = ((41, 198), (53, 199))
"""`socket` and `socketpair`, which takes a family, too."""
_NAMESPACES = 0x7E020000
"""The flags of `clone` for all new namespaces."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: to type into somebody's terminal."""
_FAMILIES = {False: (1,), True: (1, 2, 10, 16)}
"""Families of sockets, without and with a network: UNIX; IPv4, IPv6, netlink."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000
"""From this number on calls are those of another ABI, which would go round the filter."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4

Instruction = tuple[int, int, int, int]


def _argument(index: int) -> Instruction:
    return _LOAD, 0, 0, 16 + 8 * index


def _refuse(error: int) -> Instruction:
    return _RETURN, 0, 0, _ERROR | error


def _when(number: int, then: Sequence[Instruction]) -> Iterable[Instruction]:
    """Do something about one call, which has to return; go on behind it for others."""
    return [(_EQUAL, 0, len(then), number), *then]


def filter_program(*, network: bool, machine: str | None = None) -> bytes | None:
    """Return the filter for this kind of processor, or a given one; None if there is none for it."""
    column, architecture = _ARCHITECTURES.get(machine or os.uname().machine, (None, 0))
    if column is None:
        return None
    allow: Instruction = (_RETURN, 0, 0, _ALLOW)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
    ]
    for table, error in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                program += _when(number, [_refuse(error)])
    program += _when(_CLONE[column], [_argument(0), (_ANY_BIT, 0, 1, _NAMESPACES), _refuse(errno.EPERM), allow])
    typing = [(_EQUAL, len(_TERMINAL_INPUT) - place, 0, command) for place, command in enumerate(_TERMINAL_INPUT)]
    program += _when(_IOCTL[column], [_argument(1), *typing, allow, _refuse(errno.EPERM)])
    families = _FAMILIES[network]
    known = [(_EQUAL, len(families) - place, 0, family) for place, family in enumerate(families)]
    for socket in _SOCKETS:
        program += _when(socket[column], [_argument(0), *known, _refuse(errno.EAFNOSUPPORT), allow])
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*program, allow])
