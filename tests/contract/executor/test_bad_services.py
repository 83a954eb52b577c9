"""Programs that make bad services."""

import pytest
from contract.executor.harness import until
from contract.executor.service_tools import (
    LISTEN,
    MIB,
    SLEEP,
    SOON,
    alive,
    completed,
    in_state,
    listening,
    log_problem,
    one,
    ready_with_another_pid,
    spec,
)
from sandfleet import exec_, http, tcp
from sandfleet.errors import ServiceNotReadyError
from sandfleet.values.services import ServiceState

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_service_that_ignores_its_stop_signal_is_killed_with_everything_below_it(sandbox, services):
    stubborn = "trap '' TERM; setsid bash -c \"trap '' TERM; exec -a offspring-of-web sleep 1000000\" & touch up; wait; sleep 1000000"
    await services.start("web", stubborn, grace=0.2, ready=exec_("test -e up", **SOON))
    await services.wait_ready("web")
    assert await alive(sandbox, "offspring-of-we[b]")
    await services.stop("web")
    found = await one(services, "web")
    assert (found.state, found.last_exit.signal) == (ServiceState.STOPPED, "SIGKILL")
    assert not await alive(sandbox, "offspring-of-we[b]")


async def test_a_service_that_goes_into_the_background_has_ended_and_its_leftovers_are_killed(sandbox, services):
    line = "(setsid bash -c 'exec -a daemon-of-web sleep 1000000' &) ; until pgrep -f daemon-of-we[b] >/dev/null; do sleep 0.02; done"
    await services.start("web", line)
    found = await in_state(services, "web", ServiceState.COMPLETED)
    assert found.last_exit.leftover_processes_killed == 1
    assert "foreground" in found.last_exit.message
    assert not await alive(sandbox, "daemon-of-we[b]")


@pytest.mark.smoke
async def test_a_command_that_does_not_exist_is_never_ready(services):
    await services.apply([spec("web", "nosuchcmd --port 80", restart="never")])
    with pytest.raises(ServiceNotReadyError, match="exit code 127") as caught:
        await services.wait_ready("web")
    assert "nosuchcmd: command not found" in caught.value.log


async def test_a_service_that_ends_with_success_is_completed_and_not_started_again(services):
    await services.start("web", "echo done", ready=tcp(8003, **SOON))
    with pytest.raises(ServiceNotReadyError, match="exit code 0") as caught:
        await services.wait_ready("web")
    assert (caught.value.reason, caught.value.service.state) == ("Completed", ServiceState.COMPLETED)
    assert caught.value.log == "done\n"


async def test_a_crashing_service_is_seen_in_back_off_and_then_given_up(services):
    loop = spec("web", "echo again; exit 3", backoff=0.3, backoff_cap=0.3, max_failures=4)
    await services.apply([loop])
    pausing = await in_state(services, "web", ServiceState.BACK_OFF)
    assert (pausing.reason, pausing.last_exit.exit_code) == ("ExitCode", 3)
    found = await in_state(services, "web", ServiceState.FAILED)
    assert (found.reason, found.restarts) == ("CrashLoop", 3)
    assert await services.logs("web") == "again\n" * 4
    with pytest.raises(ServiceNotReadyError, match="4 times in a row"):
        await services.wait_ready("web")
    # Asked for, it is tried once more.
    await services.restart("web")
    assert (await in_state(services, "web", ServiceState.BACK_OFF)).restarts == 4


@pytest.mark.parametrize(
    ("cmd", "reason"),
    [(["no-such-program"], "NotFound"), ("no-such-program", "NotFound"), (["/etc/passwd"], "NotExecutable")],
)
async def test_a_service_that_cannot_be_started_says_why(services, cmd, reason):
    await services.apply([spec("web", cmd, restart="never")])
    found = await in_state(services, "web", ServiceState.FAILED)
    assert found.reason == reason


async def test_one_in_a_folder_that_is_not_there_says_so(services):
    await services.apply([spec("web", cwd="not/there", restart="never")])
    assert "not/there" in (await in_state(services, "web", ServiceState.FAILED)).message


async def test_a_service_that_never_becomes_ready_says_why_with_its_last_lines(services):
    await services.start("web", f"echo starting up; {SLEEP}", ready=tcp(8004, **SOON))
    with pytest.raises(ServiceNotReadyError, match="8004") as caught:
        await services.wait_ready("web", timeout=1)
    assert (caught.value.service.state, caught.value.reason) == (ServiceState.RUNNING, "NotReady")
    assert caught.value.log == "starting up\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("HTTP/1.1 503 No\\r\\n\\r\\n", "503"),
        ("SSH-2.0-OpenSSH\\r\\n", "no HTTP"),
        ("x" * 100_000, "no HTTP"),
        ("HTTP/1.1 99999 OK\\r\\n", "no HTTP"),
        ("", "without an answer"),
    ],
    ids=["503", "another protocol", "no end of line", "a status that is none", "nothing"],
)
async def test_an_answer_that_is_no_good_http_is_not_ready(services, answer, said):
    code = f"""
import socket
s = socket.create_server(('127.0.0.1', 8005))
while True:
    c, _ = s.accept(); c.recv(4096); c.sendall({answer!r}.encode().decode('unicode_escape').encode()); c.close()
"""
    await services.start("web", ["python3", "-c", code], ready=http(8005, **SOON))
    await until(lambda: message_holds(services, said))


async def message_holds(services, text):
    return text in (await one(services, "web")).message


async def test_an_endless_answer_does_not_hold_a_probe(services):
    code = """
import socket
s = socket.create_server(('127.0.0.1', 8006))
c, _ = s.accept()
while True:
    c.recv(4096)
"""
    await services.start("web", ["python3", "-c", code], ready=http(8006, interval=0.1, timeout=0.2))
    await until(lambda: message_holds(services, "no answer within 0.2 s"))


async def test_another_s_port_does_not_make_a_service_ready(services):
    await services.start("thief", listening(8007), ready=tcp(8007, **SOON))
    await services.wait_ready("thief")
    # It does not listen at all, and another process answers on its port.
    await services.start("victim", SLEEP, ready=tcp(8007, **SOON))
    with pytest.raises(ServiceNotReadyError, match="no process of this service"):
        await services.wait_ready("victim", timeout=1)
    # The control: asked without whose port it is, the same is ready.
    connect = "import socket; socket.create_connection(('127.0.0.1', 8007))"
    await services.start("fooled", SLEEP, ready=exec_(["python3", "-c", connect], **SOON))
    assert (await services.wait_ready("fooled")).is_ready


async def test_two_that_want_one_port_are_told_apart(services):
    await services.start("first", listening(8008), ready=tcp(8008, **SOON))
    await services.wait_ready("first")
    await services.apply([spec("second", listening(8008), ready=tcp(8008, **SOON), restart="never")], keep_others=True)
    await in_state(services, "second", ServiceState.FAILED)
    assert "Address already in use" in await services.logs("second")
    assert (await one(services, "first")).ports == (8008,)


async def test_a_program_that_changes_its_arguments_is_still_stopped(sandbox, services):
    await services.start("web", "exec -a something-else-entirely sleep 1000000")
    await services.wait_ready("web")
    await until(lambda: alive(sandbox, "something-else-entirel[y]"))
    await services.stop("web")
    assert not await alive(sandbox, "something-else-entirel[y]")


async def test_a_flood_is_held_in_bounds_and_what_is_missing_is_said_exactly(executor, sandbox, services):
    before = executor.memory()
    await services.start("web", "while :; do echo 0123456789abcde; done")
    pieces = await services.logs("web", follow=True)
    seen, gaps = 0, 0
    async for piece in pieces:
        assert piece.offset == seen
        seen = piece.end
        gaps += piece.dropped_bytes
        if seen > 4 * MIB:
            break
    await pieces.aclose()
    late = await services.logs("web", follow=True, offset=0)
    first = await anext(late)
    assert (first.offset, first.data) == (0, b"")
    second = await anext(late)
    assert second.offset == first.dropped_bytes > 0
    await late.aclose()
    assert executor.memory() - before < 32 * MIB
    await services.stop("web")
    sizes = await sandbox.commands.run("stat -c %s .sandfleet/services/web.log .sandfleet/services/web.log.1")
    assert all(int(size) <= 2 * MIB for size in sizes.stdout.split())
    # Other work goes on beside it.
    assert (await sandbox.commands.run("echo on")).stdout == "on\n"


async def test_a_service_that_dies_holds_back_those_that_wait_for_it(services):
    flaky = 'if test -e second-time; then exec python3 -c "{}"; fi; touch second-time; sleep 0.1; exit 1'
    db = spec("db", flaky.format(LISTEN.format(port=8009)), ready=tcp(8009, **SOON), backoff=0.2)
    await services.apply([db, spec("app", after=["db"])])
    waiting = await one(services, "app")
    assert (waiting.state, waiting.reason) == (ServiceState.WAITING, "WaitsFor")
    await services.wait_ready("app")
    assert (await one(services, "db")).restarts == 1


async def test_waiting_for_one_whose_needs_have_failed_ends_at_once(services):
    await services.apply([spec("db", "exit 1", restart="never", ready=tcp(8010, **SOON)), spec("app", after=["db"])])
    with pytest.raises(ServiceNotReadyError, match="db \\(failed\\)"):
        await services.wait_ready("app")


async def test_a_service_that_fails_its_liveness_is_stopped_and_started_again(services):
    live = exec_("test ! -e sick", interval=0.1, timeout=5.0, failures=2)
    line = f"rm -f sick; touch up; {SLEEP}"
    await services.apply([spec("web", line, ready=exec_("test -e up", **SOON), live=live, backoff=0.1)])
    before = await services.wait_ready("web")
    await completed(services, "touch sick")
    await until(lambda: ready_with_another_pid(services, before.pid))
    assert (await one(services, "web")).last_exit.reason == "Unhealthy"


async def test_a_probe_that_hangs_leaves_nothing_running(sandbox, services):
    probe = exec_("exec -a hanging-probe sleep 1000000", interval=0.1, timeout=0.2)
    await services.start("web", SLEEP, ready=probe)
    await until(lambda: message_holds(services, "no answer within 0.2 s"))
    await services.stop("web")
    await until(lambda: no_process(sandbox, "hanging-prob[e]"))


async def no_process(sandbox, marker):
    return not await alive(sandbox, marker)


async def test_an_entry_in_the_place_of_a_log_does_no_harm(sandbox, services):
    for name, trap in (
        ("fifo", "mkfifo .sandfleet/services/fifo.log"),
        ("folder", "mkdir .sandfleet/services/folder.log"),
        ("link", "ln -s /etc/passwd .sandfleet/services/link.log"),
    ):
        assert (await sandbox.commands.run(f"mkdir -p .sandfleet/services; {trap}")).ok
        await services.start(name, f"echo text; {SLEEP}")
        problem = await until(lambda name=name: log_problem(services, name))
        assert f"{name}.log" in problem
        assert await services.logs(name) == "text\n"
    await sandbox.commands.run("rm -r .sandfleet/services")
