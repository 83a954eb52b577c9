"""What an executor keeps of a session that is suspended, and what the next one on its workspace brings back."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from contract.executor.harness import Exit, until
from contract.executor.saving import reasons, run
from contract.executor.service_tools import in_state, one, spec
from contract.executor.tunnels import ECHO, SERVERS, connected
from sandfleet import Outcome
from sandfleet.errors import PreconditionFailed
from sandfleet.values.services import tcp
from sandfleet_api.executor.v1 import common_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def resuming(starting, first, **options):
    """The next executor on the workspace of one that was suspended, once all has come back."""
    await first.close_session()
    await first.exit()
    async with starting(**first.kept, **options) as second:
        yield second, await second.resumed()


async def refusal(executor, **options):
    """Reason and message of a suspension that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await executor.suspend(**options)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    said = common_pb2.ErrorDetail.FromString(dict(caught.value.trailing_metadata())["sandfleet-error-bin"])
    return said.reason, said.message


def by_id(contexts):
    return {each.context_id: each for each in contexts}


async def test_variables_contexts_files_and_services_come_back(starting):
    async with starting(keeps_workspace=True) as first:
        sandbox = first.sandbox
        await run(sandbox, "import json\nx = [1]; y = x\ngen = (i for i in x)\nopen('made', 'w').write('here')", None)
        await sandbox.files.make_dir("sub")
        other = await sandbox.create_context("other", cwd="sub", envs={"MODE": "fast"})
        await run(sandbox, "z = 5", other)
        await sandbox.services.apply([spec("web"), spec("off")])
        await sandbox.services.stop("off")
        kept = await first.suspend()
        assert by_id(kept.contexts)["default"].variables == 3
        assert reasons(by_id(kept.contexts)["default"].missing.items) == {"gen": "NotPicklable"}
        assert list(kept.services) == ["web"]
        async with resuming(starting, first) as (second, back):
            found = by_id(back.contexts)
            assert (found["default"].variables, found["other"].variables) == (3, 1)
            assert reasons(found["default"].missing.items) == {"gen": "NotPicklable"}
            assert list(back.services) == ["web"]
            execution = await second.sandbox.run_code("(x, y is x, json.dumps(x), open('made').read())")
            assert execution.text == "([1], True, '[1]', 'here')"
            assert "variables: gen" in execution.lost
            assert execution.restored == "3 variables, as after cell 1"
            question = "import os; (z, os.environ['MODE'], os.path.basename(os.getcwd()))"
            assert (await second.sandbox.run_code(question, context="other")).text == "(5, 'fast', 'sub')"
            await in_state(second.sandbox.services, "web", "ready")
            assert (await one(second.sandbox.services, "off")).state == "stopped"
            # Nothing is kept any more: a later executor of the workspace begins anew.
            assert not list(Path(first.config["state_dir"]).glob("suspended*"))


@pytest.mark.smoke
async def test_a_shell_begins_anew_and_the_report_says_why(starting):
    async with starting(keeps_workspace=True) as first:
        shell = await first.sandbox.create_context("shell", language="bash")
        await first.sandbox.run_code("cd /tmp; V=1", context=shell)
        kept = by_id((await first.suspend()).contexts)["shell"]
        assert (kept.variables, kept.reason) == (0, "NotSupported")
        async with resuming(starting, first) as (second, back):
            assert by_id(back.contexts)["shell"].reason == "NotSupported"
            assert (await second.sandbox.run_code("echo ${V:-gone}", context="shell")).logs.stdout == "gone\n"


async def test_a_later_suspension_keeps_what_came_back_of_the_first(starting):
    async with starting(keeps_workspace=True) as first:
        await first.sandbox.run_code("x = 1")
        await first.suspend()
        async with resuming(starting, first) as (second, _):
            await second.suspend()
            async with resuming(starting, second) as (third, back):
                assert by_id(back.contexts)["default"].variables == 1
                assert (await third.sandbox.run_code("x")).text == "1"


async def test_a_cell_that_comes_before_the_variables_waits_for_them(starting):
    async with starting(keeps_workspace=True) as first:
        await first.sandbox.run_code(
            "class Slow:\n def __setstate__(self, s):\n  import time; time.sleep(1)\ns = Slow(); s.v = 7"
        )
        await first.suspend()
        await first.close_session()
        await first.exit()
        async with starting(**first.kept) as second:
            assert (await second.sandbox.run_code("type(s).__name__")).text == "'Slow'"


async def test_a_running_cell_is_in_the_way_unless_the_suspension_is_forced(starting):
    async with starting(keeps_workspace=True) as first:
        sandbox = first.sandbox
        await sandbox.run_code("x = 1")
        cell = asyncio.create_task(sandbox.run_code("open('/tmp/on', 'w')\nwhile True: pass", execution_id="long"))
        await until(lambda: sandbox.files.exists("/tmp/on"))
        reason, message = await refusal(first)
        assert (reason, "long" in message) == ("ExecutionRunning", True)
        # It goes on as if it had not been asked.
        assert not cell.done()
        kept = await first.suspend(force=True)
        assert list(kept.ended_executions) == ["long"]
        assert (await cell).outcome is Outcome.INTERRUPTED
        async with resuming(starting, first) as (second, _):
            assert (await second.sandbox.run_code("x")).text == "1"


async def test_a_command_a_terminal_and_a_connection_are_in_the_way(starting):
    async with starting() as first:
        sandbox = first.sandbox
        for start in (lambda: sandbox.commands.run("sleep 1000", background=True), sandbox.pty.create):
            running = await start()
            assert (await refusal(first))[0] == "ExecutionRunning"
            await running.kill()
            await running.wait()
        await sandbox.files.write("servers.py", SERVERS)
        await sandbox.services.apply([spec("servers", ["python3", "servers.py"], ready=tcp(ECHO))])
        await in_state(sandbox.services, "servers", "ready")
        async with connected(sandbox, ECHO) as (reader, writer):
            writer.write(b"hi")
            assert await reader.readexactly(2) == b"hi"
            assert (await refusal(first))[0] == "ConnectionOpen"
            kept = await first.suspend(force=True)
        assert (list(kept.services), kept.ended_connections) == (["servers"], 1)


async def test_nothing_begins_in_a_suspended_executor_and_its_lease_rests(starting):
    async with starting() as first:
        await first.sandbox.run_code("x = 1")
        await first.open("session", lease=1.5)
        kept = await first.suspend()
        assert not await first.sandbox.health()
        with pytest.raises(PreconditionFailed) as caught:
            await first.sandbox.run_code("x")
        assert caught.value.reason == "SandboxSuspended"
        await asyncio.sleep(3)
        # Asked again it says the same, and its lease, which would be over, has not ended it.
        assert await first.suspend() == kept
        await first.close_session()
        assert await first.exit() == Exit(0, None)


async def test_another_session_of_the_workspace_does_not_get_what_was_kept(starting):
    async with starting(keeps_workspace=True) as first:
        await first.sandbox.run_code("x = 1")
        await first.suspend()
        async with resuming(starting, first, session="another") as (second, back):
            assert back is None
            assert (await second.sandbox.run_code("'x' in globals()")).text == "False"
            assert not list(Path(first.config["state_dir"]).glob("variables/suspended/*"))


@pytest.mark.needs("files of the executor seen")
async def test_a_damaged_record_is_no_reason_not_to_start(starting):
    async with starting(keeps_workspace=True) as first:
        await first.sandbox.run_code("x = 1")
        await first.suspend()
        Path(first.config["state_dir"], "suspended.json").write_text(json.dumps({"contexts": [{}]}))
        async with resuming(starting, first) as (second, back):
            assert back is None
            assert (await second.sandbox.run_code("1")).text == "1"


@pytest.mark.needs("files of the executor seen")
async def test_an_executor_that_ends_while_it_brings_variables_back_tries_again_but_not_for_ever(starting):
    async with starting(keeps_workspace=True, restarts=True) as first:
        await first.sandbox.run_code("x = 1")
        await first.suspend()
        record = Path(first.config["state_dir"], "suspended.json")
        text = record.read_text()
        await first.close_session()
        await first.exit()
        record.write_text(text.replace('"tries":0', '"tries":2'))
        async with starting(**first.kept) as second:
            assert (await second.resumed()).contexts[0].variables == 1
        record.write_text(text.replace('"tries":0', '"tries":3'))
        async with starting(**first.kept) as third:
            assert await third.resumed() is None
