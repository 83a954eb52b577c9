"""Failures of the platform are raised: deepagents has no error of its own for them, only ones of files."""

import pytest
from sandfleet import Sandbox
from sandfleet.errors import SandboxError
from sandfleet.integrations.langchain import SandfleetBackend


def test_each_call_of_a_sandbox_that_has_ended_raises_and_is_no_answer() -> None:
    backend = SandfleetBackend(Sandbox.create())
    backend.sandbox.kill()
    calls = [
        lambda: backend.execute("true"),
        lambda: backend.upload_files([("/tmp/a", b"a")]),
        lambda: backend.download_files(["/tmp/a"]),
    ]
    for call in calls:
        with pytest.raises(SandboxError):
            call()
