"""A session's share of what the kernel gives one user: of the instances and watches of inotify.

Without root all sandboxes of a user are one to the kernel. A user namespace has bounds of its own beside that, which
code in it cannot raise. Its owner has all rights in it from outside, as long as the process that uses them becomes no
other program: so a fresh interpreter writes them.
"""

import asyncio
import logging
import os
import sys

from sandfleet_executor.effects.namespace.launch import under_gvisor

# Of 128 instances that a user usually has. The executor watches the workspace with one of its own, outside.
SHARE = {"max_inotify_instances": 16, "max_inotify_watches": 8192}
SECONDS = 10.0
# Arguments: the pid of a process of the namespace, and NAME=VALUE.
PROGRAM = """
import ctypes, os, sys
namespace = os.open(f"/proc/{sys.argv[1]}/ns/user", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(namespace, 0x10000000):
    sys.exit(os.strerror(ctypes.get_errno()))
for name, value in (pair.split("=") for pair in sys.argv[2:]):
    with open(f"/proc/sys/user/{name}", "w") as file:
        file.write(value)
"""

_LOG = logging.getLogger(__name__)


def is_needed(*, separated_user: bool) -> bool:
    """Root gives each sandbox a user of its own, and gVisor's kernel is the sandbox's own."""
    return separated_user and os.geteuid() != 0 and not under_gvisor()


async def bound(pid: int) -> bool:
    """Bounds the user namespace of this process; whether the kernel lets it. Code of the session has to wait for it."""
    pairs = [f"{name}={value}" for name, value in SHARE.items()]
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", PROGRAM, str(pid), *pairs),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(SECONDS):
            _, said = await process.communicate()
    except (OSError, TimeoutError) as error:
        _LOG.warning("cannot bound the inotify instances of a session: %s", error or "it takes too long")
        return False
    if process.returncode:
        _LOG.warning("cannot bound the inotify instances of a session: %s", said.decode(errors="replace")[-200:])
    return process.returncode == 0
