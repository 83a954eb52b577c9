"""SWE-ReX's tests of a runtime; the sdist brings them, without the fixtures."""

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Self

import pytest
from sandfleet import AsyncSandbox, Sandbox
from sandfleet.integrations.swerex import SandfleetRuntime
from swerex.runtime import abstract as rex

helpers = ModuleType("suite.tests.conftest")
helpers._Action = partial(rex.BashAction, timeout=60)  # type: ignore[attr-defined]
helpers._Command = partial(rex.Command, timeout=60)  # type: ignore[attr-defined]
sys.modules[helpers.__name__] = helpers

from suite.tests.test_execution import *  # noqa: E402, F403 - the suite is collected from here

# They look at the runtime's files without the runtime.
ON_SHARED_FILES = {"test_read_write_file", "test_read_large_file"}
# A bash context has no terminal.
IN_A_TERMINAL = {
    "test_run_in_shell_interactive_command",
    "test_run_in_shell_interactive_command_timeout",
    "test_run_in_shell_multiple_interactive_and_normal_commands",
    "test_interrupt_pager",
}
# Without a terminal Python ends at once: on a busy machine not within the 0.1 s that the test allows.
BY_TIME = {"test_run_in_shell_interactive_command_timeout"}


class SandboxPath(PurePosixPath):
    """A path in the sandbox, read and written as a local one."""

    def __new__(cls, path: str, _sandbox: Sandbox) -> Self:
        return super().__new__(cls, path)

    def __init__(self, _path: str, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def __truediv__(self, name: str) -> "SandboxPath":  # type: ignore[override]
        return SandboxPath(f"{self}/{name}", self.sandbox)

    def read_text(self) -> str:
        return self.sandbox.files.read(str(self))

    def write_text(self, text: str) -> None:
        self.sandbox.files.write(str(self), text)


@pytest.fixture
async def remote_runtime() -> AsyncIterator[SandfleetRuntime]:
    runtime = SandfleetRuntime(await AsyncSandbox.create(keep_alive=True))
    yield runtime
    await runtime.close()


@pytest.fixture
async def runtime_with_default_session(
    remote_runtime: SandfleetRuntime, request: pytest.FixtureRequest
) -> SandfleetRuntime:
    if request.node.originalname in IN_A_TERMINAL:
        strict = request.node.originalname not in BY_TIME
        request.applymarker(pytest.mark.xfail(reason="a bash context has no terminal", strict=strict))
    await remote_runtime.create_session(rex.CreateBashSessionRequest())
    return remote_runtime


@pytest.fixture
async def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | SandboxPath:
    if request.node.originalname not in ON_SHARED_FILES:
        return tmp_path
    runtime = request.getfixturevalue("remote_runtime")
    return SandboxPath("/tmp/shared", await asyncio.to_thread(Sandbox.connect, runtime.sandbox.sandbox_id))
