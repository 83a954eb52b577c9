"""What user code asks of the kernel itself: each call is refused in a session, and answered without one (control)."""

import json

import pytest
from sandfleet import Outcome

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.needs("no_new_privs of its own")]

CALL = """
import ctypes, errno, json, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
def call(numbers, *given):
    ctypes.set_errno(0)
    answer = libc.syscall(numbers[0] if x86 else numbers[1], *given)
    return "answered" if answer >= 0 else errno.errorcode[ctypes.get_errno()]
def forked(work):
    ours, theirs = os.pipe()
    if not (pid := os.fork()):
        os.write(theirs, work().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(ours, 100).decode()
def file():
    return os.open("/tmp", os.O_RDWR | os.O_TMPFILE)
def family(number):
    import socket
    try:
        socket.socket(number, socket.SOCK_STREAM if number != 38 else socket.SOCK_SEQPACKET).close()
    except OSError as problem:
        return errno.errorcode[problem.errno]
    return "answered"
def netlink(protocol):
    import socket
    try:
        socket.socket(16, 3, protocol).close()
    except OSError as problem:
        return errno.errorcode[problem.errno]
    return "answered"
# Of a context it is PID 1 of the session. Each is set to what it is.
spawner = os.getppid()
none, every = ctypes.create_string_buffer(128), ctypes.create_string_buffer(b"\\xff" * 128, 128)
same = ctypes.create_string_buffer(48)
ctypes.memmove(same, (48).to_bytes(4, "little"), 4)
def limits():
    import resource
    return ctypes.create_string_buffer(b"".join(each.to_bytes(8, "little", signed=True) for each in resource.getrlimit(7)))
found = """

# attack → (code, what a session answers). The code harms nothing, also where it is answered.
ATTACKS = {
    "a user namespace by unshare": ("forked(lambda: call((272, 97), 0x10000000))", "EPERM"),
    "a user namespace beside others": (
        "forked(lambda: call((272, 97), 0x10000000 | 0x20000000 | 0x00020000))",
        "EPERM",
    ),
    "a user namespace by clone": ("forked(lambda: call((56, 220), 0x10000000 | 17, 0, 0, 0, 0))", "EPERM"),
    "clone3, whose flags no filter reads": ("call((435, 435), 0, 0)", "ENOSYS"),
    "io_uring": ("call((425, 425), 1, ctypes.create_string_buffer(200))", "ENOSYS"),
    "userfaultfd": ("call((323, 282), 1)", "ENOSYS"),
    "memfd_secret": ("call((447, 447), 0)", "ENOSYS"),
    "keys of the kernel": ("call((250, 219), 0, -3, 1)", "EPERM"),
    "a key added": ('call((248, 217), b"user", b"of-a-test", b"x", 1, -1)', "EPERM"),
    "bpf": ("call((321, 280), 99, 0, 0)", "EPERM"),
    "perf_event_open": ("call((298, 241), 0, 0, -1, -1, 0)", "EPERM"),
    "tracing": ("forked(lambda: call((101, 117), 0, 0, 0, 0))", "EPERM"),
    "memory of another process": ("call((310, 270), os.getpid(), 0, 0, 0, 0, 0)", "EPERM"),
    "a descriptor of another process": ("call((438, 438), os.pidfd_open(os.getpid()), 0, 0)", "EPERM"),
    "a disk filled at once": ("call((285, 47), file(), 0, ctypes.c_long(0), ctypes.c_long(1 << 20))", "ENOTSUP"),
    "the same behind a file's end": ("call((285, 47), file(), 1, ctypes.c_long(0), ctypes.c_long(1 << 20))", "ENOTSUP"),
    "sockets to the hypervisor": ("family(40)", "EAFNOSUPPORT"),
    "events of the machine's devices": ("netlink(15)", "EPROTONOSUPPORT"),
    "the kernel's records of connections": ("netlink(12)", "EPROTONOSUPPORT"),
    "the kernel's ciphers": ("family(38)", "EAFNOSUPPORT"),
}
# Many kernels are made without these: they then answer as the filter does.
REFUSED_ANYWAY = {"the kernel's ciphers"}
# PID 1 has the user of the code, and is who ends what uses too much: code gives it no time to.
STARVING = {
    "its priority": "call((141, 140), 0, spawner, 0)",
    "the priority of its group": "call((141, 140), 1, os.getpgid(spawner), 0)",
    "the priority of the user": "call((141, 140), 2, 0, 0)",
    "its policy": "call((144, 119), spawner, 0, none)",
    "its parameters": "call((142, 118), spawner, none)",
    "its attributes": "call((314, 274), spawner, same, 0)",
    "its processors": "call((203, 122), spawner, ctypes.c_long(128), every)",
    "its turns at the disk": "call((251, 30), 1, spawner, 0)",
    "the disk turns of the user": "call((251, 30), 3, os.getuid(), 0)",
    "its limits": "call((302, 261), spawner, 7, limits(), 0)",
}


async def answer(executor, code):
    execution = await executor.sandbox.run_code(f"{CALL}{code}\nprint(json.dumps(found))", timeout=30)
    assert execution.outcome is Outcome.OK, execution
    return json.loads(execution.logs.stdout)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.attack("calls the kernel", "refused")
async def test_a_session_refuses_the_call(executor, attack):
    code, expected = ATTACKS[attack]
    assert await answer(executor, code) == expected


@pytest.mark.parametrize("attack", sorted(set(ATTACKS) - REFUSED_ANYWAY))
@pytest.mark.control("calls the kernel")
async def test_without_a_session_the_kernel_answers(unprotected, attack):
    code, refused = ATTACKS[attack]
    assert await answer(unprotected, code) != refused


@pytest.mark.parametrize("attack", STARVING)
@pytest.mark.attack("gives PID 1 less of the machine", "refused")
async def test_code_cannot_say_how_much_of_the_machine_pid_1_gets(executor, attack):
    assert await answer(executor, f"os.getppid() == 1 and {STARVING[attack]}") == "EPERM"


@pytest.mark.parametrize("attack", STARVING)
@pytest.mark.control("gives PID 1 less of the machine")
async def test_without_a_session_code_can_say_it_of_the_spawner(unprotected, attack):
    assert await answer(unprotected, f"os.getppid() != 1 and {STARVING[attack]}") == "answered"


# What programs need of the same calls.
KEPT = {
    "a file's blocks freed": "(os.write(fd := file(), b'x' * 8192), call((285, 47), fd, 3, ctypes.c_long(0), ctypes.c_long(4096)))[1]",
    "blocks asked for by the C library": "os.posix_fallocate(file(), 0, 65536) or 'answered'",
    "memory with code": "__import__('mmap').mmap(-1, 4096, prot=7) and 'answered'",
    "a thread": "(t := __import__('threading').Thread(target=int), t.start(), t.join()) and 'answered'",
    "a program": "__import__('subprocess').run(['true']).returncode or 'answered'",
    "netlink": "__import__('socket').socket(16, 3, 0).close() or 'answered'",
    "unix sockets": "family(1)",
    "IPv6": "family(10)",
    "sockets listed": "netlink(4)",
    "its own priority": "call((141, 140), 0, 0, 5)",
    "the priority of a thread": "call((141, 140), 0, __import__('threading').get_native_id(), 5)",
    "its own policy": "call((144, 119), 0, 3, none)",
    "the processors of a thread": "call((203, 122), __import__('threading').get_native_id(), ctypes.c_long(128), every)",
    "its own limits": "call((302, 261), os.getpid(), 7, limits(), 0)",
}


@pytest.mark.parametrize("need", KEPT)
async def test_what_programs_need_is_answered(executor, need):
    assert await answer(executor, KEPT[need]) == "answered"


@pytest.mark.parametrize("source", ["cat /proc/self/status", "bash -c '(cat /proc/self/status; true) & wait'"])
async def test_each_process_is_filtered_and_can_have_no_capability(executor, unprotected, source):
    said = (await executor.sandbox.commands.run(source)).stdout
    fields = dict(line.split(":\t", 1) for line in said.splitlines())
    assert fields["Seccomp"] == "2"
    assert int(fields["CapBnd"], 16) == 0
    control = (await unprotected.sandbox.commands.run(source)).stdout
    assert int(dict(line.split(":\t", 1) for line in control.splitlines())["Seccomp_filters"]) < int(
        fields["Seccomp_filters"]
    )
