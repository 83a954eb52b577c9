"""Failures of the platform are SWE-ReX's own errors, whichever call meets them."""

from pathlib import Path

import pytest
from sandfleet import AsyncSandbox
from sandfleet.errors import SandboxEnded
from sandfleet.integrations.swerex import SandfleetRuntime
from swerex.exceptions import SwerexException
from swerex.runtime import abstract as rex


async def test_each_call_of_a_sandbox_that_has_ended_is_theirs_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    runtime = SandfleetRuntime(await AsyncSandbox.create(keep_alive=True))
    await runtime.create_session(rex.CreateBashSessionRequest())
    await runtime.sandbox.kill()
    calls = [
        lambda: runtime.create_session(rex.CreateBashSessionRequest(session="other")),
        lambda: runtime.run_in_session(rex.BashAction(command="true")),
        lambda: runtime.execute(rex.Command(command="true", shell=True)),
        lambda: runtime.read_file(rex.ReadFileRequest(path="a")),
        lambda: runtime.write_file(rex.WriteFileRequest(path="a", content="a")),
        lambda: runtime.upload(rex.UploadRequest(source_path=str(tmp_path / "file"), target_path="a")),
        lambda: runtime.close_session(rex.CloseBashSessionRequest()),
    ]
    for call in calls:
        with pytest.raises(SwerexException, match="the sandbox failed, which is no fault of the code") as failed:
            await call()
        assert isinstance(failed.value.__cause__, SandboxEnded)
