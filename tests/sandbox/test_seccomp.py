"""The filter of system calls, run by a small machine of the tests' own, for both kinds of processor."""

import ctypes
import errno
import struct

import pytest

from antwort.sandbox.seccomp import filter_program
from antwort.sandbox.system_calls import EXAMINED, FILES, MEMORY, PROCESSES, REFUSED, SOCKETS, WAITING, numbers

X86, ARM = "x86_64", "aarch64"
MACHINES = [X86, ARM]
ARCHITECTURE = {X86: 0xC000003E, ARM: 0xC00000B7}
ALLOWED, KILLED, PRETENDED = "allowed", "killed", "pretended"
NEEDED = f"{FILES},{MEMORY},{PROCESSES},{SOCKETS},{WAITING}"
NEVER = """
clone3 inotify_add_watch inotify_init1 io_setup io_submit landlock_create_ruleset memfd_create memfd_secret modify_ldt
mq_notify mq_open mq_timedsend msgget msgsnd process_mrelease remap_file_pages seccomp semctl semget semop semtimedop
shmat shmget tee timer_create timer_settime vmsplice
"""
"""What is told not to exist, for it takes memory that nobody could count, wakes who was stopped, or is not needed."""


def decided(
    machine: str,
    number: int,
    *arguments: int,
    network: bool = False,
    counted: bool = True,
    architecture: int | None = None,
) -> object:
    """Return what the filter says to a call: allowed, killed, or the error."""
    program = filter_program(network=network, counted=counted, machine=machine)
    assert program is not None
    steps = list(struct.iter_unpack("=HBBI", program))
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURE[machine], 0, *given)
    place = accumulator = 0
    while True:
        code, yes, no, value = steps[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            known = {0x7FFF0000: ALLOWED, 0x80000000: KILLED, 0x00050000: PRETENDED}
            return known.get(value, errno.errorcode.get(value & 0xFFFF))
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            place += yes if holds else no


def said(machine: str, call: str, *arguments: int, network: bool = False, counted: bool = True) -> object:
    return decided(machine, numbers(EXAMINED, machine)[call], *arguments, network=network, counted=counted)


def libseccomp(machine: str, name: str) -> int:
    """Return the number that a library knows a call by; below 0 if there is none."""
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    return int(resolve(ARCHITECTURE[machine], name.encode()))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("calls", [NEEDED, EXAMINED, REFUSED], ids=["needed", "examined", "refused"])
def test_the_numbers_are_those_of_libseccomp(machine: str, calls: str) -> None:
    ours = numbers(calls, machine)
    names = [row.split()[0] for row in calls.split(",")]
    assert len(set(names)) == len(names)
    assert ours == {name: number for name in names if (number := libseccomp(machine, name)) >= 0}


@pytest.mark.parametrize("machine", MACHINES)
def test_what_programs_need_is_allowed_what_is_dangerous_is_refused_and_nothing_else_exists(machine: str) -> None:
    expected = dict.fromkeys(range(700), "ENOSYS")
    expected |= dict.fromkeys(numbers(NEEDED, machine).values(), ALLOWED)
    expected |= dict.fromkeys(numbers(REFUSED, machine).values(), "EPERM")
    for number in numbers(EXAMINED, machine).values():
        del expected[number]
    assert {number: decided(machine, number) for number in expected} == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_what_nobody_could_count_does_not_exist(machine: str) -> None:
    names = NEVER.split()
    there = [number for name in names if (number := libseccomp(machine, name)) >= 0]
    assert len(there) >= len(names) - 2
    assert {decided(machine, number) for number in there} == {"ENOSYS"}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("clone", (0x01200011,), ALLOWED),
        ("clone", (0x003D0F00,), ALLOWED),
        *[("clone", (flags,), "EPERM") for flags in (0x10000, 0x003D0B00)],
        *[("clone", (1 << bit,), "EPERM") for bit in (17, 25, 26, 27, 28, 29, 30)],
        *[("fcntl", (3, command), ALLOWED) for command in (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)],
        *[("fcntl", (3, command), "EPERM") for command in (10, 1024, 1026, 1031)],
        *[("ioctl", (0, command), ALLOWED) for command in (0x5401, 0x5413, 0x541B, 0x5421, 0x5451, 0x80045430, 0x8933)],
        *[("ioctl", (0, command), "EPERM") for command in (0x5412, 0x541C, 0x541D, 0x5423, 0x1_0000_5412)],
        *[("ioctl", (0, command), "ENOTTY") for command in (0, 0x1277, 0x40049409, 0xC020660B, 0x401C5820)],
        *[("personality", (value,), ALLOWED) for value in (0, 0xFFFFFFFF)],
        *[("personality", (value,), "EPERM") for value in (8, 0x40000, 0x0400000, 0x0200000)],
        *[("prctl", (option,), ALLOWED) for option in (3, 4, 15, 16, 36, 38)],
        *[("prctl", (option, 18), "EPERM") for option in (1, 0x59616D61)],
        *[("setsockopt", (3, 1, option), PRETENDED) for option in (7, 8, 32, 33)],
        *[("setsockopt", (3, level, option), ALLOWED) for level, option in ((1, 2), (1, 9), (6, 7), (0, 8))],
        *[(call, (1, kind), ALLOWED) for call in ("socket", "socketpair") for kind in (1, 0x80801)],
        *[("socket", (1, kind), "ESOCKTNOSUPPORT") for kind in (2, 3, 5, 0x80002)],
        *[
            (call, (family, 1), "EAFNOSUPPORT")
            for call in ("socket", "socketpair")
            for family in (2, 10, 16, 17, 38, 40)
        ],
    ],
)
def test_arguments_decide(machine: str, call: str, arguments: tuple[int, ...], expected: object) -> None:
    assert said(machine, call, *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        *[("mmap", (0, length, 3, 0x21), ALLOWED) for length in (4096, 2 << 20)],
        *[("mmap", (0, length, 3, 0x21), "ENOMEM") for length in ((2 << 20) + 1, 1 << 32, (1 << 40) + 1)],
        *[("mmap", (0, 1 << 40, 3, flags), ALLOWED) for flags in (0x01, 0x02, 0x22)],
        ("sendfile", (), "EINVAL"),
        ("splice", (), "EINVAL"),
        ("sched_setaffinity", (), "EPERM"),
        ("prctl", (4, 0), PRETENDED),
        ("prctl", (3,), ALLOWED),
    ],
)
def test_where_the_kernel_does_not_count_memory_some_of_it_cannot_be_had(
    machine: str, call: str, arguments: tuple[int, ...], expected: object
) -> None:
    assert said(machine, call, *arguments, counted=False) == expected
    assert said(machine, call, *arguments) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_kind_of_processor_end_the_process(machine: str) -> None:
    assert decided(machine, 1, architecture=0x40000003) == KILLED


def test_calls_of_the_other_interface_of_a_processor_do_not_exist() -> None:
    assert decided(X86, 0x40000000 + 1) == "ENOSYS"
    assert decided(X86, 0x40000000 + 165) == "ENOSYS"


@pytest.mark.parametrize("machine", MACHINES)
def test_with_a_network_there_are_its_sockets_and_no_others(machine: str) -> None:
    families = {family: said(machine, "socket", family, 1, network=True) for family in (1, 2, 10, 16, 17, 38, 40)}
    assert [family for family, told in families.items() if told == ALLOWED] == [1, 2, 10, 16]
    assert said(machine, "socket", 2, 2, network=True) == ALLOWED
    assert said(machine, "socket", 1, 2, network=True) == "ESOCKTNOSUPPORT"


def test_another_kind_of_processor_has_no_filter() -> None:
    assert filter_program(network=False, machine="riscv64") is None
