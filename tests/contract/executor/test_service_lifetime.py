"""Services and the sandbox around them: what starts with it, what it survives, what ends with it."""

import asyncio

import pytest
from contract.executor.harness import until
from contract.executor.service_tools import (
    MIB,
    SLEEP,
    back_to,
    in_state,
    log_problem,
    logs_hold,
    names_are,
    one,
    spec,
)
from sandfleet.errors import AlreadyExistsError, LimitReached
from sandfleet.values.services import ServiceState

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_50_run_side_by_side_and_none_is_left(starting):
    async with starting(limits={"processes": 250, "memory_bytes": 6 << 30}) as made:
        services = made.sandbox.services
        await services.apply([spec(f"s{number}") for number in range(50)])
        await asyncio.gather(*(services.wait_ready(f"s{number}", timeout=100) for number in range(50)))
        with pytest.raises(LimitReached):
            await services.apply([spec(f"t{number}") for number in range(15)], keep_others=True)
        await services.stop_all()
        assert {each.state for each in await services.list()} == {ServiceState.STOPPED}
        await until(lambda: back_to(made.sandbox, 1))


async def test_when_everything_is_killed_those_come_back_that_are_to(fresh):
    services = fresh.sandbox.services
    await services.apply([spec("back", backoff=0.1), spec("not", restart="never")])
    before = await services.wait_ready("back")
    # In a namespace of its own PID 1 cannot be killed from below: then its children are.
    await fresh.sandbox.commands.run("kill -9 -1", timeout=20)
    found = await until(lambda: came_back(services))
    assert found.last_exit.signal == "SIGKILL"
    assert (found.pid != before.pid) or found.restarts
    assert (await one(services, "not")).state is ServiceState.FAILED


async def came_back(services):
    found = await one(services, "back")
    return found if found.restarts and found.is_ready else None


async def test_a_service_that_the_memory_guard_ends_says_so_and_follows_its_policy(starting):
    async with starting(limits={"memory_bytes": 256 * MIB}) as made:
        services = made.sandbox.services
        hog = "x = []\nwhile True: x.append(bytearray(b'1' * (8 << 20)))"
        await services.apply([spec("hog", ["python3", "-c", hog], restart="never"), spec("other")])
        found = await in_state(services, "hog", ServiceState.FAILED)
        assert (found.reason, "256 MiB" in found.message) == ("MemoryLimit", True)
        # It is ready when it has lived for a moment.
        await in_state(services, "other", ServiceState.READY)


async def test_a_full_workspace_costs_the_file_of_a_log_and_nothing_else(starting):
    async with starting() as made:
        # The log's folder is taken to where there is little room.
        fill = "mkdir -p .sandfleet; ln -s /tmp .sandfleet/services; head -c 1G /dev/zero >/tmp/fill; true"
        await made.sandbox.commands.run(fill, timeout=60)
        services = made.sandbox.services
        await services.start("web", f"echo text; {SLEEP}")
        assert "No space" in await until(lambda: log_problem(services, "web"))
        assert await services.logs("web") == "text\n"
        await made.sandbox.commands.run("rm /tmp/fill")
        await until(lambda: is_filed(made.sandbox))
        assert not await log_problem(services, "web")


async def is_filed(sandbox):
    return (await sandbox.commands.run("grep text .sandfleet/services/web.log")).exit_code == 0


async def test_they_end_with_the_sandbox_and_get_their_stop_signal_first(starting):
    async with starting() as made:
        line = "trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.02; done"
        await made.sandbox.services.start("web", line)
        await until(lambda: logs_hold(made.sandbox.services, "up"))
        pieces = await made.sandbox.services.logs("web", follow=True)
        heard = asyncio.create_task(everything(pieces))
        await made.close_session()
        assert "stopped" in await heard
        await made.exit()
        await until(lambda: not made.processes())


async def everything(pieces):
    said = ""
    try:
        async for piece in pieces:
            said += piece.text
    except Exception as error:  # noqa: BLE001 - the executor has gone, as it should
        said += f"\n{error}"
    return said


TEMPLATE = [{"name": "db", "command": SLEEP}, {"name": "app", "command": ["sleep", "1000000"], "after": ["db"]}]


async def test_what_the_template_declares_starts_with_the_session_and_not_before(starting):
    async with starting(session=None, services=TEMPLATE) as made:
        services = made.sandbox.services
        assert await services.list() == ()
        await made.open("session", envs={"COLOUR": "blue"})
        await services.wait_ready("app")
        found = await services.list()
        assert [(each.name, each.from_template) for each in found] == [("db", True), ("app", True)]
        pids = [each.pid for each in await services.list()]
        # Renewed, they go on.
        await made.open("session")
        assert [each.pid for each in await services.list()] == pids
        environ = await made.sandbox.commands.run(f"tr '\\0' '\\n' </proc/{pids[0]}/environ")
        assert "COLOUR=blue" in environ.stdout.splitlines()


async def test_a_session_s_set_leaves_the_template_s_alone(starting):
    async with starting(services=TEMPLATE) as made:
        services = made.sandbox.services
        await services.apply([spec("own", after=["app"])])
        await services.wait_ready("own")
        await services.apply([])
        await until(lambda: names_are(services, {"db", "app"}))
        with pytest.raises(AlreadyExistsError):
            await services.start("db", SLEEP)


async def test_a_restart_in_place_starts_the_template_s_and_forgets_the_session_s(starting):
    async with starting(services=TEMPLATE, restarts=True) as made:
        await made.sandbox.services.start("own", SLEEP)
        await made.sandbox.services.wait_ready("own")
        made.kill()
        await made.back()
        await made.open("session")
        services = made.sandbox.services
        await services.wait_ready("app")
        assert {each.name for each in await services.list()} == {"db", "app"}


async def test_running_services_keep_no_sandbox_from_being_idle(starting):
    async with starting(idle_timeout=1.5) as made:
        await made.sandbox.services.start("web", SLEEP)
        assert (await made.exit()).code == 41
