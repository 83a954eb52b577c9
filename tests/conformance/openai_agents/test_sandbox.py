"""The SDK's tests of a sandbox that look at nothing of its own clients; the sdist brings them."""

import sys
from pathlib import Path
from typing import Any

import pytest
import suite
from sandfleet.integrations.openai_agents import SandfleetClient

sys.path += suite.__path__

from tests.sandbox import test_run_cwd, test_unix_local


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (test_run_cwd, test_unix_local):
        monkeypatch.setattr(module, "UnixLocalSandboxClient", SandfleetClient)


@pytest.fixture
def tmp_path() -> Path:
    """Below this folder a session makes its workspace: in the sandbox."""
    return Path("/tmp/theirs")


class TestPrograms(test_unix_local.TestUnixLocalPty):
    # They look at the files and processes of their own session.
    test_tty_start_cancellation_closes_open_file_descriptors = None
    test_tty_fd_close_is_owned_without_blocking_termination = None
    test_pty_exit_waits_for_output_close_before_terminal_cleanup = None


test_concurrent_runs: Any = test_run_cwd.test_concurrent_runs_scope_relative_paths_with_shared_live_session
test_skills: Any = test_run_cwd.test_python_skill_uses_absolute_root_from_nested_workdir
test_resumed_run: Any = test_run_cwd.test_resumed_run_rebinds_cwd_to_pending_sandbox_tool
test_resumed_patch: Any = test_run_cwd.test_resumed_apply_patch_uses_current_run_cwd
