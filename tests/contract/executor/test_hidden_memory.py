"""Memory that no process has mapped: it counts, the execution ends with outcome `memory`, the sandbox goes on."""

import pytest
import pytest_asyncio
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
LIMITS = {"memory_bytes": 256 * MIB, "tmp_bytes": 32 * MIB, "open_files": 4096}
STAYS = "\nimport time; time.sleep(20)"
# Each takes about 700 MiB, in some seconds, and holds it.
ATTACKS = {
    "files without a name": """
import os
held = []
for number in range(44):
    held.append(os.memfd_create('hidden'))
    os.write(held[-1], b'x' * (16 << 20))
""",
    "files without a name, on their way through a socket": """
import os, socket
ways = []
for number in range(44):
    fd = os.memfd_create('hidden')
    os.write(fd, b'x' * (16 << 20))
    ways.append(socket.socketpair())
    socket.send_fds(ways[-1][0], [b'x'], [fd])
    os.close(fd)
""",
    "shared memory that is attached to nothing": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for number in range(44):
    segment = libc.shmget(0, 16 << 20, 0o1600)
    assert segment >= 0, ctypes.get_errno()
    place = libc.shmat(segment, None, 0)
    ctypes.memset(place, 120, 16 << 20)
    libc.shmdt(ctypes.c_void_p(place))
""",
    "shared memory of its own": """
import mmap
held = [mmap.mmap(-1, 16 << 20) for number in range(44)]
for each in held:
    each.write(b'x' * (16 << 20))
""",
}
KERNEL = {
    "buffers of sockets": """
import os, socket
held = []
try:
    for number in range(2000):
        pair = socket.socketpair()
        held.append(pair)
        for end in pair:
            end.setblocking(False)
            try:
                while True: end.send(b'x' * 65536)
            except BlockingIOError: pass
except OSError: pass
""",
    "page tables": """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
# Private, read alone, without a reserve: each page is the page of zeros, each 2 MiB of it cost 4 KiB of a table.
place = libc.mmap(None, ctypes.c_size_t(360 << 30), 1, 0x4022, -1, ctypes.c_size_t(0))
assert place not in (None, 2 ** 64 - 1), ctypes.get_errno()
for step in range(360 << 9):
    ctypes.c_char.from_address(place + (step << 21)).value
""",
}
# What System V keeps for processes outlives them, and the kernel of one machine lists it.
SYSTEM_V = {
    "queues of messages": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
message = ctypes.create_string_buffer((1).to_bytes(8, 'little') + b'x' * 8192, 8200)
for number in range(31_000):
    queue = libc.msgget(0, 0o600)
    assert queue >= 0, ctypes.get_errno()
    for _ in range(2): libc.msgsnd(queue, message, 8192, 0o4000)
""",
}
SEMAPHORES = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
def held(): return len(open('/proc/sysvipc/sem').readlines()[1:])
# Two megabytes each.
made = sum(libc.semget(0, 32_000, 0o600) >= 0 for number in range(300))
for _ in range(SECONDS * 10):
    if held() < made: break
    time.sleep(0.1)
print('kept' if held() == made == 300 else 'removed')
"""
# In a pod gVisor lets code make a user namespace; on one machine the filter of system calls refuses it.
IN_PODS = {
    "a file system in memory of its own": """
import subprocess
fill = 'mkdir -p /tmp/own && mount -t tmpfs none /tmp/own && head -c 700M /dev/zero > /tmp/own/file; sleep 20'
subprocess.run(['unshare', '-Urm', 'sh', '-c', fill])
""",
    "empty files": """
import os
os.mkdir('/tmp/many')
for number in range(1_000_000):
    os.close(os.open(f'/tmp/many/{number}', os.O_CREAT | os.O_WRONLY))
""",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    async with starting(limits=LIMITS, rollback={"enabled": False}) as made:
        yield made


async def ends(sandbox, code):
    """In a command: the address space of a context of Python is limited, which would come first."""
    return await sandbox.commands.run(["python3", "-c", code + STAYS], timeout=60)


async def is_done_with_room(starting, code):
    async with starting(limits=LIMITS | {"memory_bytes": 3072 * MIB}) as made:
        result = await made.sandbox.commands.run(["python3", "-c", code], timeout=60)
        assert result.outcome is Outcome.OK, result
        return True


@pytest.mark.parametrize("attack", [*ATTACKS, *KERNEL])
@pytest.mark.attack("hides memory from the guard", "outcome memory, the others live on")
async def test_memory_that_no_process_has_mapped_counts(executor, sandbox, attack):
    need = "memory cgroup" if attack in KERNEL else "memory told as a whole" if "on their way" in attack else None
    if need and need not in executor.host.traits:
        pytest.skip(f"needs {need}, which this set-up has not")
    await sandbox.run_code("kept = 1")
    result = await ends(sandbox, (ATTACKS | KERNEL)[attack])
    assert (result.outcome, result.blame, result.reason) == ("memory", "limit", "MemoryLimit"), result
    assert (await sandbox.run_code("kept")).text == "1"
    assert not executor.ended
    # What has no process any more is not counted for ever.
    small = "import time; x = b'1' * (100 << 20); time.sleep(1.5); len(x)"
    context = await sandbox.create_context()
    assert (await sandbox.run_code(small, context=context)).text == str(100 << 20)
    await sandbox.delete_context(context)


@pytest.mark.needs("network of the pod")
@pytest.mark.parametrize("attack", IN_PODS)
@pytest.mark.attack("hides memory in a pod", "outcome memory, the others live on")
async def test_memory_that_only_a_pod_lets_code_have_counts(executor, sandbox, attack):
    await sandbox.run_code("kept = 1")
    result = await ends(sandbox, IN_PODS[attack])
    assert (result.outcome, result.blame, result.reason) == ("memory", "limit", "MemoryLimit"), result
    assert (await sandbox.run_code("kept")).text == "1"


@pytest.mark.needs("network of the pod")
@pytest.mark.parametrize("attack", IN_PODS)
@pytest.mark.control("hides memory in a pod")
async def test_where_a_pod_has_room_the_same_is_done(starting, attack):
    assert await is_done_with_room(starting, IN_PODS[attack].replace("sleep 20", "true").replace("1_000_000", "10_000"))


@pytest.mark.parametrize("attack", [*ATTACKS, *KERNEL])
@pytest.mark.control("hides memory from the guard")
async def test_where_there_is_room_the_same_is_done(host, starting, attack):
    if attack in KERNEL and "memory cgroup" not in host.traits:
        pytest.skip("needs memory cgroup, which this set-up has not")
    assert await is_done_with_room(starting, (ATTACKS | KERNEL)[attack])


async def test_files_that_are_read_are_no_memory_of_the_code(executor, sandbox):
    """The kernel keeps them in memory as long as no process needs it."""
    code = (
        "head -c 600M /dev/zero > large; cat large large > /dev/null; sleep 1; find / -xdev > /dev/null 2>&1; rm large"
    )
    result = await sandbox.commands.run(code, timeout=100)
    assert result.outcome in (Outcome.OK, Outcome.ERROR), result
    assert (await sandbox.run_code("1 + 1")).text == "2"


@pytest.mark.needs("own uid")
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
@pytest.mark.attack("makes empty files without an end", "no space", control="in it")
async def test_files_in_memory_have_a_number_too(sandbox, folder):
    code = (
        "import os\ncount = 0\ntry:\n    for count in range(20_000): open(f'{folder}/e{count}', 'w').close()\n"
        "except OSError as error: print(error.strerror, count)\nelse: print('all of them')\n"
        "for number in range(count): os.unlink(f'{folder}/e{number}')"
    )
    said = (await sandbox.commands.run(["python3", "-c", code.replace("{folder}", folder)], timeout=60)).stdout
    assert said.startswith("No space left on device 16"), said
    # Control: on a disk there is place for them.
    await sandbox.files.make_dir("many")
    said = (await sandbox.commands.run(["python3", "-c", code.replace("{folder}", "many")], timeout=60)).stdout
    assert said == "all of them\n"


@pytest.mark.needs("no_new_privs of its own")
@pytest.mark.parametrize("attack", SYSTEM_V)
@pytest.mark.attack("hides memory in queues of System V", "outcome memory, the others live on")
async def test_queues_of_messages_count_as_memory_of_the_last_sender(executor, sandbox, attack):
    await sandbox.run_code("kept = 1")
    result = await ends(sandbox, SYSTEM_V[attack])
    assert (result.outcome, result.blame, result.reason) == ("memory", "limit", "MemoryLimit"), result
    assert (await sandbox.run_code("kept")).text == "1"


@pytest.mark.needs("no_new_privs of its own")
@pytest.mark.parametrize("attack", SYSTEM_V)
@pytest.mark.control("hides memory in queues of System V")
async def test_where_there_is_room_the_queues_are_kept(starting, attack):
    assert await is_done_with_room(starting, SYSTEM_V[attack])


@pytest.mark.needs("no_new_privs of its own")
@pytest.mark.attack("hides memory in semaphores", "they are removed", control="in it")
async def test_semaphores_that_take_much_memory_are_removed(sandbox, starting):
    await sandbox.run_code("kept = 1")
    result = await sandbox.commands.run(["python3", "-c", SEMAPHORES.replace("SECONDS", "60")], timeout=100)
    assert result.stdout == "removed\n", result
    assert (await sandbox.run_code("kept")).text == "1"
    # Control: where there is room they are kept.
    async with starting(limits=LIMITS | {"memory_bytes": 3072 * MIB}) as made:
        code = SEMAPHORES.replace("SECONDS", "3")
        assert (await made.sandbox.commands.run(["python3", "-c", code], timeout=100)).stdout == "kept\n"


@pytest.mark.needs("memory cgroup")
@pytest.mark.attack(
    "uses what its template may have, and its claim may not", "the kernel's limits are the claim's", control="in it"
)
async def test_a_claim_s_lower_limits_are_the_kernel_s_too(starting):
    async with starting(session=None) as executor:

        def held(file):
            return {int((folder / file).read_text()) for folder in executor.cgroups() if (folder / file).exists()}

        def memory():
            return held("memory.limit_in_bytes") or held("memory.high")

        # Control: those of the template.
        assert (memory(), held("pids.max")) == ({2560 * MIB}, {256 + 48})
        await executor.open("session", limits={"memory_bytes": 256 * MIB, "processes": 64})
        assert (memory(), held("pids.max")) == ({512 * MIB}, {64 + 48})
