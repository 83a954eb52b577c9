"""Processes that leave the context or the command that began them: PID 1 gets them, measures them and ends them."""

import asyncio

import pytest
from contract.executor.harness import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

# What runs on: it says every 50 ms that it does.
TICKS = "import time\nwhile True:\n    open('/workspace/{name}', 'a').write('x')\n    time.sleep(0.05)"
LEAVES = {
    "without a reaper above it": """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    {ticks}
os.wait()
""",
    "as a brother of its maker": """
import ctypes, os
CLONE_PARENT, SIGCHLD, SYS_CLONE = 0x8000, 17, {clone}
maker = os.getpid()
if ctypes.CDLL(None).syscall(SYS_CLONE, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0:
    # gVisor does not know the flag: it stays below its maker.
    if os.getppid() == maker: os._exit(0)
    {ticks}
""",
}


def leaving(way, name):
    ticks = TICKS.format(name=name).replace("\n", "\n    ")
    clone = "{'x86_64': 56, 'aarch64': 220}[os.uname().machine]"
    return LEAVES[way].format(ticks=ticks, clone=clone)


async def size(sandbox, name):
    return (await sandbox.files.get_info(name)).size if await sandbox.files.exists(name) else 0


@pytest.mark.parametrize("kind", ["cell", "command"])
@pytest.mark.parametrize("way", LEAVES)
@pytest.mark.attack("leaves the context that began it", "it is ended")
async def test_what_leaves_its_context_is_ended(sandbox, context, way, kind):
    name = f"ticks-{list(LEAVES).index(way)}-{kind}"
    code = leaving(way, name)
    # While what began it runs: the end of another process would be an occasion to look.
    code = f"{leaving(way, name)}\nimport time; time.sleep(8)"
    if kind == "cell":
        running = asyncio.create_task(sandbox.run_code(code, context=context))
    else:
        running = asyncio.create_task(sandbox.commands.run(["python3", "-c", code]))
    await asyncio.sleep(1)

    async def has_stopped():
        before = await size(sandbox, name)
        await asyncio.sleep(0.5)
        return await size(sandbox, name) == before

    # It may have been ended before its first tick.
    if kind == "command":
        # It stays below the command's supervisor, and ends with the command.
        assert (await running).ok
    await until(has_stopped, seconds=5)
    if kind == "cell":
        assert not running.done()
        assert (await running).ok


@pytest.mark.control("leaves the context that began it")
async def test_what_stays_with_its_context_runs_on(sandbox, context):
    code = f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {TICKS.format(name='stays')!r}])"
    await sandbox.run_code(code, context=context)
    first = await size(sandbox, "stays")

    async def has_ticked():
        return await size(sandbox, "stays") > first

    await until(has_ticked)
    await sandbox.run_code("child.kill(); child.wait()", context=context)
