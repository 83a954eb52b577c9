"""Services: how they are declared, started, watched and stopped."""

import grpc
import pytest
from contract.executor.harness import until
from contract.executor.service_tools import (
    LISTEN,
    SLEEP,
    SOON,
    completed,
    in_state,
    listening,
    logs_hold,
    names_are,
    one,
    ready_with_another_pid,
    spec,
)
from sandfleet import exec_, http, tcp
from sandfleet.errors import InvalidArgument, NotFoundError
from sandfleet.values.services import ServiceState
from sandfleet_api.executor.v1 import service_pb2, service_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.smoke
async def test_a_server_is_ready_when_it_answers_and_goes_on_without_its_client(executor, sandbox, services):
    await services.start("web", "exec python3 -m http.server 8000", ready=http(8000, **SOON))
    ready = await services.wait_ready("web")
    assert (ready.state, ready.restarts) == (ServiceState.READY, 0)
    other = executor.client()
    assert (await one(other.services, "web")).is_ready
    await other.close()
    fetch = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8000/').status)"
    assert (await sandbox.commands.run(["python3", "-c", fetch])).stdout == "200\n"


@pytest.mark.smoke
async def test_the_ports_that_it_listens_on_are_listed_with_its_pid(sandbox, services):
    await services.start("web", listening(8001), ready=tcp(8001, **SOON))
    await services.wait_ready("web")
    found = await one(services, "web")
    assert found.ports == (8001,)
    assert (await sandbox.commands.run(["kill", "-0", str(found.pid)])).exit_code == 0


@pytest.mark.smoke
async def test_a_port_of_a_process_that_it_left_below_itself_is_its_own(services):
    line = f'(setsid python3 -c "{LISTEN.format(port=8002)}" &); {SLEEP}'
    await services.start("web", line, ready=tcp(8002, **SOON))
    await services.wait_ready("web")
    assert (await one(services, "web")).ports == (8002,)


@pytest.mark.smoke
async def test_one_probe_is_a_command_in_the_service_s_folder_with_its_variables(sandbox, services):
    await sandbox.files.make_dir("place")
    probe = exec_('test "$COLOUR" = blue && test -e marker', **SOON)
    await services.start("web", f"touch marker; {SLEEP}", cwd="place", envs={"COLOUR": "blue"}, ready=probe)
    assert (await services.wait_ready("web")).is_ready


@pytest.mark.smoke
async def test_each_starts_after_what_it_needs_is_ready_and_stops_before_it(sandbox, services):
    def noted(name):
        trap = f"trap 'echo -{name} >>order; exit 0' TERM"
        return f"{trap}; echo +{name} >>order; touch up-{name}; while :; do sleep 0.02; done"

    def noting(name, *after):
        return spec(name, noted(name), after=after, ready=exec_(f"test -e up-{name}", **SOON))

    await sandbox.commands.run("rm -f order up-*")
    await services.apply([noting("front", "app"), noting("app", "db"), noting("db")])
    await services.wait_ready("front")
    await services.stop_all()
    assert (await sandbox.files.read("order")).split() == ["+db", "+app", "+front", "-front", "-app", "-db"]
    assert [each.state for each in await services.list()] == ["stopped"] * 3
    # What it comes after is started with it.
    await services.start("front")
    await services.wait_ready("front")
    assert [each.state for each in await services.list()] == ["ready"] * 3


@pytest.mark.smoke
async def test_the_same_set_twice_changes_nothing_and_another_one_only_what_differs(services):
    first = [spec("same"), spec("changed"), spec("gone")]
    assert (await services.apply(first)).started == ("same", "changed", "gone")
    await services.wait_ready("gone")
    pids = {each.name: each.pid for each in await services.list()}
    assert (await services.apply(first)).unchanged == ("same", "changed", "gone")
    assert {each.name: each.pid for each in await services.list()} == pids
    applied = await services.apply([spec("same"), spec("changed", envs={"A": "1"}), spec("new")])
    assert (applied.started, applied.restarted, applied.stopped) == (("new",), ("changed",), ("gone",))
    await until(lambda: names_are(services, {"same", "changed", "new"}))
    await in_state(services, "changed", ServiceState.READY)
    assert (await one(services, "same")).pid == pids["same"]
    assert (await one(services, "changed")).pid != pids["changed"]


@pytest.mark.smoke
async def test_one_is_started_beside_the_others(services):
    await services.start("a", SLEEP)
    await services.start("b", SLEEP, after=["a"])
    assert [each.name for each in await services.list()] == ["a", "b"]


@pytest.mark.smoke
async def test_a_restarted_service_has_another_process(services):
    await services.start("web", SLEEP)
    before = await services.wait_ready("web")
    await services.restart("web")
    after = await until(lambda: ready_with_another_pid(services, before.pid))
    assert (after.restarts, after.last_exit.reason) == (1, "Stopped")


@pytest.mark.smoke
async def test_what_it_writes_is_read_followed_and_taken_up_where_it_was_left(services):
    await services.start("web", f"echo one; echo two >&2; until test -e go; do sleep 0.02; done; echo three; {SLEEP}")
    await until(lambda: logs_hold(services, "two"))
    assert await services.logs("web") == "one\ntwo\n"
    assert await services.logs("web", tail=1) == "two\n"
    assert await services.logs("web", offset=4) == "two\n"
    pieces = await services.logs("web", follow=True)
    first = await anext(pieces)
    assert (first.offset, first.text) == (0, "one\ntwo\n")
    await completed(services, "touch go")
    assert (await anext(pieces)).text == "three\n"
    again = await services.logs("web", follow=True, offset=first.end)
    assert (await anext(again)).text == "three\n"
    await pieces.aclose()
    await again.aclose()


async def test_a_python_service_s_log_has_what_it_prints_at_once(sandbox, services):
    code = "print('said'); open('said', 'w'); import time; time.sleep(3600)"
    await services.start("web", ["python3", "-c", code])
    await until(lambda: logs_hold(services, "said"))
    # Control: with a buffer it would come much later.
    await sandbox.files.remove("said")
    await services.start("buffered", ["python3", "-c", code], envs={"PYTHONUNBUFFERED": ""})
    await until(lambda: sandbox.files.exists("said"))
    assert await services.logs("buffered") == ""


@pytest.mark.smoke
async def test_its_log_is_a_file_of_the_workspace_that_no_execution_reports_as_its_change(sandbox, services):
    await services.start("web", f"echo hello; {SLEEP}")
    path = (await one(services, "web")).log_path
    assert path == ".sandfleet/services/web.log"
    result = await sandbox.commands.run(f"until grep -q hello {path}; do sleep 0.02; done")
    assert (result.files.created, result.files.modified) == ((), ())


# Mistakes


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        ([spec("a", after=["b"]), spec("b", after=["a"])], "ServiceCycle"),
        ([spec("a", after=["unknown"])], "UnknownService"),
        ([spec("a"), spec("a")], "InvalidArgument"),
        ([spec("../a")], "InvalidArgument"),
        ([spec("a", "")], "InvalidArgument"),
        ([spec("a", envs={"1": "x"})], "InvalidArgument"),
        ([spec("a", ready=tcp(0))], "InvalidArgument"),
        ([spec("a", ready=http(80, "/ x"))], "InvalidArgument"),
        ([spec("a", stop_signal=9)], "InvalidArgument"),
        ([spec("a", grace=1e6)], "InvalidArgument"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_set_that_cannot_be_changes_nothing(services, specs, reason):
    await services.start("here", SLEEP)
    with pytest.raises(InvalidArgument) as caught:
        await services.apply(specs)
    assert caught.value.reason == reason
    assert [each.name for each in await services.list()] == ["here"]


@pytest.mark.smoke
async def test_a_service_that_is_not_there_is_not_found(services):
    for call in (
        services.start("unknown"),
        services.stop("unknown"),
        services.restart("unknown"),
        services.wait_ready("unknown"),
        services.logs("unknown"),
    ):
        with pytest.raises(NotFoundError):
            await call


@pytest.mark.smoke
async def test_services_need_the_scope_of_commands(executor):
    async with executor.channel() as channel:
        metadata = (("authorization", f"Bearer {executor.token(scope='interpreter filesystem session admin')}"),)
        stub = service_pb2_grpc.ServiceManagerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.List(service_pb2.ServiceManagerServiceListRequest(), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
