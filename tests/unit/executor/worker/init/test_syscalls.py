"""The filter of system calls, run by a small machine for classic BPF."""

import errno
import struct

import pytest
from sandfleet_executor.worker.init import syscalls

MACHINES = list(syscalls.ARCHITECTURES)
ALLOWED = "allowed"
# A call that the filter does not name: read, on either machine.
READ = {"x86_64": 0, "aarch64": 63}


def answer(machine, number, *arguments, architecture=None):
    """What the filter for a machine says of a call."""
    code = list(struct.iter_unpack("=HBBI", syscalls.program(machine)))
    given = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", number, architecture or syscalls.ARCHITECTURES[machine], 0, *given)
    held = at = 0
    tests = {
        syscalls.EQUAL: lambda value: held == value,
        syscalls.AT_LEAST: lambda value: held >= value,
        syscalls.ANY_BIT: lambda value: bool(held & value),
    }
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == syscalls.RETURN:
            return ALLOWED if value == syscalls.ALLOW else errno.errorcode[value & 0xFFFF]
        if operation == syscalls.LOAD:
            held = struct.unpack_from("=I", data, value)[0]
        else:
            at += yes if tests[operation](value) else no


def call(machine, name, *arguments):
    return answer(machine, syscalls.NUMBERS[name][MACHINES.index(machine)], *arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_named_calls_are_refused_and_others_allowed(machine):
    assert answer(machine, READ[machine]) == ALLOWED
    assert {call(machine, name) for name in syscalls.UNKNOWN} == {"ENOSYS"}
    assert {call(machine, name) for name in syscalls.FORBIDDEN} == {"EPERM"}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x3D0F00,), ALLOWED),
        ("clone", (17,), ALLOWED),
        ("clone", (0x10000000 | 17,), "EPERM"),
        ("unshare", (0x200,), ALLOWED),
        ("unshare", (0x10000000,), "EPERM"),
        ("unshare", (0x10000000 | 0x20000,), "EPERM"),
        ("fallocate", (3, 0), "ENOTSUP"),
        ("fallocate", (3, 1), "ENOTSUP"),
        ("fallocate", (3, 0x10), "ENOTSUP"),
        ("fallocate", (3, 0x20), "ENOTSUP"),
        ("fallocate", (3, 3), ALLOWED),
        ("fallocate", (3, 8), ALLOWED),
        *[("socket", (family, 1), ALLOWED) for family in (1, 2, 10, 16)],
        # Netlink: routes and sockets are the session's own network's; events of devices are the machine's.
        *[("socket", (16, 3, protocol), ALLOWED) for protocol in (0, 4)],
        *[("socket", (16, 3, protocol), "EPROTONOSUPPORT") for protocol in (9, 11, 12, 15, 16, 21)],
        ("socket", (2, 3, 15), ALLOWED),
        *[(name, (0,), ALLOWED) for name in syscalls.OF_A_PROCESS],
        *[(name, (77,), ALLOWED) for name in syscalls.OF_A_PROCESS],
        *[(name, (1,), "EPERM") for name in syscalls.OF_A_PROCESS],
        # The kernel takes a pid as 32 bits.
        *[(name, (1 | 1 << 32,), "EPERM") for name in syscalls.OF_A_PROCESS],
        ("setpriority", (0, 0), ALLOWED),
        ("setpriority", (0, 77), ALLOWED),
        ("setpriority", (1, 0), ALLOWED),
        ("setpriority", (0, 1), "EPERM"),
        ("setpriority", (1, 1), "EPERM"),
        ("setpriority", (2, 0), "EPERM"),
        ("setpriority", (2, 1000), "EPERM"),
        ("ioprio_set", (1, 0), ALLOWED),
        ("ioprio_set", (1, 1), "EPERM"),
        ("ioprio_set", (2, 1), "EPERM"),
        ("ioprio_set", (3, 1000), "EPERM"),
        *[("socket", (family, 1), "EAFNOSUPPORT") for family in (0, 3, 17, 21, 38, 40, 44)],
    ],
)
def test_some_calls_depend_on_their_arguments(machine, name, arguments, expected):
    assert call(machine, name, *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_are_unknown(machine):
    i386, arm = 0x40000003, 0x40000028
    assert {answer(machine, READ[machine], architecture=other) for other in (i386, arm)} == {"ENOSYS"}
    assert answer("x86_64", syscalls.X32 | READ["x86_64"]) == "ENOSYS"


def test_a_machine_whose_calls_are_not_known_gets_no_filter():
    assert syscalls.program("riscv64") == b""


@pytest.mark.parametrize("machine", MACHINES)
def test_each_jump_ends_inside_the_program(machine):
    code = list(struct.iter_unpack("=HBBI", syscalls.program(machine)))
    ends = [
        at + 1 + jump
        for at, (operation, yes, no, _) in enumerate(code)
        if operation != syscalls.RETURN
        for jump in (yes, no)
    ]
    assert max(ends) < len(code)
    assert code[-1][0] == syscalls.RETURN
