"""The filter of system calls, run by a small machine of the tests' own, for both kinds of processor."""

import errno
import struct

import pytest

from antwort.sandbox.seccomp import filter_program

X86, ARM = "x86_64", "aarch64"
ARCHITECTURE = {X86: 0xC000003E, ARM: 0xC00000B7}
ALLOWED, KILLED = "allowed", "killed"


def decided(
    machine: str, number: int, *arguments: int, network: bool = False, architecture: int | None = None
) -> object:
    """Return what the filter says to a call: allowed, killed, or the error."""
    program = filter_program(network=network, machine=machine)
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
        elif code == 0x06:
            return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(value, errno.errorcode.get(value & 0xFFFF))
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            place += yes if holds else no


@pytest.mark.parametrize(
    ("machine", "number", "arguments", "expected"),
    [
        *[(X86, number, (), ALLOWED) for number in (0, 1, 2, 59, 231, 257, 302)],
        *[(ARM, number, (), ALLOWED) for number in (63, 64, 56, 221, 94, 261)],
        *[(X86, number, (), "EPERM") for number in (165, 101, 250, 321, 298, 272, 323, 425, 246, 308, 161, 175)],
        *[(ARM, number, (), "EPERM") for number in (40, 117, 219, 280, 241, 97, 282, 425, 104, 268, 51, 105)],
        *[(X86, number, (), "ENOSYS") for number in (435, 319, 29)],
        *[(ARM, number, (), "ENOSYS") for number in (435, 279, 194)],
        (X86, 56, (0x01200011,), ALLOWED),
        (ARM, 220, (0x003D0F00,), ALLOWED),
        *[(X86, 56, (1 << bit,), "EPERM") for bit in (17, 25, 26, 27, 28, 29, 30)],
        *[(ARM, 220, (1 << bit,), "EPERM") for bit in (17, 25, 26, 27, 28, 29, 30)],
        (X86, 41, (1,), ALLOWED),
        (ARM, 198, (1,), ALLOWED),
        *[(X86, 41, (family,), "EAFNOSUPPORT") for family in (2, 10, 16, 17, 38, 40)],
        *[(ARM, 198, (family,), "EAFNOSUPPORT") for family in (2, 10, 16, 17, 38, 40)],
        (X86, 16, (0, 0x5401), ALLOWED),
        (X86, 16, (0, 0x5412), "EPERM"),
        (X86, 16, (0, 0x541C), "EPERM"),
        (ARM, 29, (0, 0x1_0000_5412), "EPERM"),
        (X86, 0x40000000 + 165, (), "ENOSYS"),
    ],
)
def test_what_the_filter_says(machine: str, number: int, arguments: tuple[int, ...], expected: object) -> None:
    assert decided(machine, number, *arguments) == expected


@pytest.mark.parametrize("machine", [X86, ARM])
def test_calls_of_another_kind_of_processor_end_the_process(machine: str) -> None:
    assert decided(machine, 1, architecture=0x40000003) == KILLED


def test_with_a_network_there_are_its_sockets_and_no_others() -> None:
    families = {family: decided(X86, 41, family, network=True) for family in (1, 2, 10, 16, 17, 38, 40)}
    assert [family for family, said in families.items() if said == ALLOWED] == [1, 2, 10, 16]


def test_another_kind_of_processor_has_no_filter() -> None:
    assert filter_program(network=False, machine="riscv64") is None
