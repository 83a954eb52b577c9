"""Limits of open files, disk, output and executions: what one sees at each, and that the same goes on where it is
higher.

Processes are in test_processes.py, memory in test_memory.py, deadlines in test_deadlines.py.
"""

import asyncio

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet import Outcome
from sandfleet.errors import LimitReached, NoSpace

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
DISK = 96 * MIB
# So much would an attack write at most if nothing ended it.
ATTACK = 4 * DISK
FD_BOMB = "import os\nheld = []\ntry:\n    while len(held) < 3000: held.append(os.dup(1))\nexcept OSError as error: print(error.errno)\nlen(held)"
# Each goes on until it is ended, or has done enough: then it waits to be ended for what it did.
MANY_FILES = f"""
import time
for number in range({ATTACK // MIB}):
    with open(f'part{{number}}', 'wb') as file: file.write(bytes({MIB}))
print('all written')
while True: time.sleep(0.01)
"""
SMALL_FILES = f"""
import os, time
for number in range({ATTACK // 4096}):
    os.close(os.open(f'small{{number}}', os.O_CREAT | os.O_WRONLY))
print('all written')
while True: time.sleep(0.01)
"""
WITHOUT_NAMES = f"""
import os, time
held = []
for number in range({ATTACK // MIB // 8}):
    file = open('fleeting', 'wb', buffering=0)
    os.unlink('fleeting')
    file.write(bytes({8 * MIB}))
    held.append(file)
print('all written')
while True: time.sleep(0.01)
"""
# Which is seen only where the kernel shows what is open and has no name: gVisor does not.
NAMELESS = pytest.mark.needs("files without names seen")
ATTACKS = {"many files": MANY_FILES, "small files": SMALL_FILES, "files without names": WITHOUT_NAMES}
ATTACK_NAMES = [pytest.param(name, marks=NAMELESS if name == "files without names" else ()) for name in ATTACKS]


@pytest_asyncio.fixture(loop_scope="session")
async def small(starting):
    """With little disk; a test leaves it full."""
    async with starting(limits={"disk_bytes": DISK}) as made:
        yield made.sandbox


def is_disk(ended):
    assert (ended.outcome, ended.blame, ended.reason) == ("killed", "limit", "DiskLimit"), ended
    return True


# Open files


@pytest.mark.attack("opens more files than the limit", "refused", control="in it")
async def test_a_process_cannot_have_more_open_files_than_the_limit(starting, sandbox, context):
    async with starting(limits={"open_files": 256}) as executor:
        bomb = await executor.sandbox.run_code(FD_BOMB)
        assert (bomb.outcome, bomb.logs.stdout) == ("ok", "24\n")
        assert 128 < int(bomb.text) < 256
        result = await executor.sandbox.commands.run("ulimit -n; ulimit -Hn")
        assert result.stdout == "256\n256\n"
        # Another process has its own.
        assert (await executor.sandbox.run_code("1", context=await executor.sandbox.create_context())).text == "1"
    # Control: the limit of a template is higher.
    assert (await sandbox.run_code(FD_BOMB, context=context)).text == "3000"


@pytest.mark.attack("raises the limits of its sandbox", "refused", control="in it")
async def test_code_cannot_raise_its_limits(small):
    code = "import resource\n"
    for name in ("NOFILE", "FSIZE"):
        code += f"try: resource.setrlimit(resource.RLIMIT_{name}, (2**40, 2**40))\nexcept (ValueError, OSError): print('no')\n"
    assert (await small.run_code(code)).logs.stdout == "no\nno\n"
    # Control: it may lower them.
    assert (await small.run_code(code.replace("2**40, 2**40", "99, 99"))).logs.stdout == ""


# The disk


@pytest.mark.parametrize("attack", ATTACK_NAMES)
@pytest.mark.parametrize("as_command", [False, True], ids=["cell", "command"])
@pytest.mark.attack("fills the disk", "outcome disk, the sandbox lives")
async def test_what_fills_the_disk_is_ended_and_the_sandbox_lives(small, attack, as_command):
    code = ATTACKS[attack]
    ended = await (
        small.commands.run(["python3", "-c", code], timeout=110) if as_command else small.run_code(code, timeout=110)
    )
    assert is_disk(ended)
    assert ended.message == f"The workspace's limit of {DISK >> 20} MiB was reached."
    assert (await small.commands.run("echo on")).stdout == "on\n"


@pytest.mark.parametrize("attack", ATTACK_NAMES)
@pytest.mark.control("fills the disk")
async def test_control_with_room_for_it_the_same_code_is_done(starting, attack):
    async with starting(limits={"disk_bytes": 2 * ATTACK}) as executor:
        # It ends a while after it has written, for the limit to be looked at.
        code = ATTACKS[attack].replace("while True: time.sleep(0.01)", "time.sleep(2)")
        ended = await executor.sandbox.run_code(code, timeout=110)
        assert (ended.outcome, ended.logs.stdout) == ("ok", "all written\n")


async def test_one_huge_file_ends_at_the_limit(small, sandbox):
    line = f"exec head -c {DISK + 8 * MIB} /dev/zero > huge"
    ended = await small.commands.run(line)
    assert is_disk(ended)
    assert ended.signal == "SIGXFSZ"
    assert (await small.files.get_info("huge")).size <= DISK
    await small.files.remove("huge")
    # Python is told by an exception, and the caller does not have to guess the reason.
    cell = await small.run_code(f"with open('huge', 'wb') as file: file.write(bytes({DISK + MIB}))")
    assert (cell.outcome, cell.error.name, cell.error.value) == ("error", "OSError", "[Errno 27] File too large")
    # Control
    assert (await sandbox.commands.run(line)).ok
    await sandbox.files.remove("huge")


@pytest.mark.needs("holes of files told")
async def test_holes_of_sparse_files_take_no_disk_but_no_file_is_larger_than_the_limit(small):
    assert (await small.commands.run(f"truncate -s {DISK} sparse1 sparse2 sparse3")).ok
    assert (await small.usage()).disk_bytes < MIB
    assert not (await small.commands.run(f"truncate -s {DISK + 1} sparse4")).ok


async def test_a_file_with_many_names_counts_once(small):
    line = "head -c 20M /dev/zero > one; for n in $(seq 20); do ln one other$n; done"
    assert (await small.commands.run(line)).ok
    assert 20 * MIB <= (await small.usage()).disk_bytes < 22 * MIB


async def test_links_to_elsewhere_and_folders_that_go_round_count_nothing(small):
    assert (await small.commands.run("ln -s / root; ln -s . self; mkdir -p a/b; ln -s ../.. a/b/up")).ok
    assert (await small.usage()).disk_bytes < MIB


async def test_a_full_workspace_takes_no_more_over_the_api_and_can_be_cleaned_up(small):
    assert is_disk(await small.run_code(MANY_FILES, timeout=110))
    assert (await small.usage()).disk_bytes > DISK
    with pytest.raises(NoSpace):
        await small.files.write("more", b"x")
    # What does not let it grow may run, so that there is a way out.
    assert (await small.commands.run("rm part*")).ok
    await until(lambda: _has_room(small))
    await small.files.write("more", b"x")
    assert (await small.commands.run("head -c 30M /dev/zero > again")).ok


async def _has_room(sandbox):
    return (await sandbox.usage()).disk_bytes < MIB


async def test_beyond_all_limits_nothing_starts_until_something_was_removed(starting):
    # A file may be as large as the limit, and there is a margin: so it takes a few to go beyond.
    async with starting(limits={"disk_bytes": 8 * MIB}) as executor:
        sandbox = executor.sandbox

        async def refused():
            try:
                await sandbox.commands.run("for n in $(seq 20); do head -c 8M /dev/zero > part$RANDOM$n & done; wait")
            except LimitReached as error:
                return error.reason
            return ""

        assert await until(refused) == "WorkspaceFull"
        with pytest.raises(LimitReached):
            await sandbox.run_code("1")
        for entry in await sandbox.files.list("."):
            if entry.name.startswith("part"):
                await sandbox.files.remove(entry.name)

        async def runs():
            try:
                return (await sandbox.run_code("1 + 1")).text == "2"
            except LimitReached:
                return False

        await until(runs)


@pytest.mark.attack("uploads more than the disk limit", "refused", control="in it")
async def test_an_upload_cannot_pass_the_limit(small):
    with pytest.raises(NoSpace) as refused:
        await small.files.write("huge", bytes(DISK + MIB))
    assert refused.value.reason == "NoSpace"
    assert not await small.files.exists("huge")
    await until(lambda: _has_room(small))
    # Control
    await small.files.write("fits", bytes(DISK // 2))


@pytest.mark.attack("fills the disk from a process that it leaves behind", "it is ended")
async def test_what_a_cell_leaves_running_is_held_to_the_limit_as_well(small):
    # Slow, so that no walk is late. Meanwhile, cells that write nothing come and go.
    slow = MANY_FILES.replace("file.write(", "time.sleep(0.1), file.write(")
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {slow!r}]).pid"
    writer = (await small.run_code(code)).text

    async def has_ended():
        return (await small.run_code(f"import os\nos.path.exists('/proc/{writer}')")).text == "False"

    assert not await has_ended()
    await until(has_ended, seconds=110)
    used = (await small.usage()).disk_bytes
    assert DISK < used < ATTACK
    # It writes no more. What the usage says may be of a look before its last file.
    written = "import time; sum(one.stat().st_size for one in os.scandir('.') if one.is_file())"
    before = (await small.run_code(written)).text
    assert (await small.run_code(f"time.sleep(1); {written}")).text == before


@pytest.mark.control("fills the disk from a process that it leaves behind")
async def test_control_with_room_for_it_what_is_left_behind_is_not_ended(starting):
    async with starting(limits={"disk_bytes": 2 * ATTACK}) as executor:
        code = f"import subprocess, sys\nleft = subprocess.Popen([sys.executable, '-c', {MANY_FILES!r}])"
        await executor.sandbox.run_code(code)
        await until(lambda: executor.sandbox.files.exists(f"part{ATTACK // MIB - 1}"))
        assert (await executor.sandbox.run_code("left.poll() is None")).text == "True"


async def test_the_one_that_writes_is_ended_and_the_one_beside_it_is_not(host, small):
    other = await small.create_context("other")
    waits = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n'went'"
    beside = asyncio.create_task(small.run_code(waits, context=other, timeout=110))
    assert is_disk(await small.run_code(MANY_FILES, timeout=110))
    if not host.counts_writes:
        # The writer is unknown: all running executions end.
        assert is_disk(await beside)
        return
    await small.commands.run("rm part*")
    await small.commands.run("touch go")
    assert (await beside).text == "'went'"


# Output and executions at once


@pytest.mark.attack("floods its output", "cut to the limit, and counted", control="in it")
async def test_a_flood_of_output_is_cut_to_the_limit_and_counted(starting, sandbox):
    line = "head -c 64M /dev/zero"
    async with starting(limits={"output_bytes": 1 * MIB}) as executor:
        flood = await executor.sandbox.commands.run(line)
        assert (len(flood.stdout_bytes), flood.usage.stdout_bytes) == (MIB, 64 * MIB)
        assert [gap.dropped_bytes for gap in flood.gaps] == [63 * MIB]
    # Control
    assert len((await sandbox.commands.run(line)).stdout_bytes) == 16 * MIB


async def test_no_more_executions_run_at_once_than_the_limit(starting, sandbox):
    async with starting(limits={"executions": 3}) as executor:
        asleep = [asyncio.create_task(executor.sandbox.commands.run("sleep 1000")) for _ in range(3)]
        await until(lambda: _runs(executor.sandbox, 3))
        with pytest.raises(LimitReached) as refused:
            await executor.sandbox.commands.run("true")
        assert refused.value.reason == "TooMany"
        for one in asleep:
            one.cancel()
        await asyncio.gather(*asleep, return_exceptions=True)
        await until(lambda: _runs(executor.sandbox, 0))
        assert (await executor.sandbox.commands.run("true")).ok
    # Control
    assert all(one.ok for one in await asyncio.gather(*(sandbox.commands.run("sleep 0.5") for _ in range(4))))


async def _runs(sandbox, count):
    return (await sandbox.usage()).running_executions == count


# Who sets them


async def test_limits_are_lowered_when_a_session_opens(starting):
    async with starting(session=None) as executor:
        await executor.open("session", limits={"open_files": 128, "disk_bytes": DISK})
        sandbox = executor.sandbox
        assert (await sandbox.commands.run("ulimit -n")).stdout == "128\n"
        assert is_disk(await sandbox.commands.run(f"exec head -c {DISK + MIB} /dev/zero > huge"))
        limits = (await sandbox.usage()).limits
        assert (limits.open_files, limits.disk_bytes) == (128, DISK)


@pytest.mark.parametrize("limits", [{"open_files": 1 << 20}, {"disk_bytes": 1 << 50}, {"open_files": 8}])
@pytest.mark.attack("asks for higher limits than the template", "refused")
async def test_limits_cannot_be_raised_when_a_session_opens_nor_made_useless(starting, limits):
    async with starting(session=None) as executor:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await executor.open("session", limits=limits)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.control("asks for higher limits than the template")
@pytest.mark.control("asks for higher limits than the template")
async def test_control_a_limit_can_be_as_high_as_the_template_says(starting):
    async with starting(session=None, limits={"open_files": 8192}) as executor:
        await executor.open("session", limits={"open_files": 8192})
        result = await executor.sandbox.commands.run("ulimit -n")
        assert (result.outcome, result.stdout) == (Outcome.OK, "8192\n")
