"""The sync façade: the same calls, from any thread, inside a running loop, after a fork."""

import asyncio
import inspect
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from functools import cached_property

import pytest
from sandfleet import Fleet, Sandbox
from sandfleet import _portal as portal
from sandfleet._calls import OwnOrById
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._sync.commands import CommandHandle, Commands
from sandfleet._sync.files import Files
from sandfleet._sync.ports import Forward
from sandfleet._sync.pty import Pty, PtyHandle
from sandfleet._sync.services import Services
from sandfleet._sync.tables import ContextHandle, Tables
from sandfleet._sync.variables import States
from sandfleet._sync.watch import FileWatch
from sandfleet.errors import PreconditionFailed
from sandfleet.resources.commands import AsyncCommandHandle, AsyncCommands
from sandfleet.resources.files.files import AsyncFiles
from sandfleet.resources.files.watch import AsyncFileWatch
from sandfleet.resources.ports import AsyncForward
from sandfleet.resources.pty import AsyncPty, AsyncPtyHandle
from sandfleet.resources.services import AsyncServices
from sandfleet.resources.tables import AsyncContextHandle, AsyncTables
from sandfleet.resources.variables import AsyncStates
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import FakeFleet, Hangs, finished, output
from sandfleet.values import options
from sandfleet.values.execution import Context, Outcome

PAIRS = [
    (AsyncSandbox, Sandbox),
    (AsyncStates, States),
    (AsyncCommands, Commands),
    (AsyncCommandHandle, CommandHandle),
    (AsyncFiles, Files),
    (AsyncFileWatch, FileWatch),
    (AsyncServices, Services),
    (AsyncFleet, Fleet),
    (AsyncForward, Forward),
    (AsyncPty, Pty),
    (AsyncPtyHandle, PtyHandle),
    (AsyncTables, Tables),
]
# What the async classes use among themselves, with protobuf in it.
INNER = {
    "access",
    "check_gateway",
    "relay",
    "renew",
    "open_claim",
    "review_call",
    "open_resumed",
    "wake",
    "connection",
    "keeping_heads",
    "list_within",
    "get_within",
    "sign_journal",
    "spans",
    "begin",
}


def public(cls: type) -> dict[str, object]:
    own = {name for base in cls.__mro__[:-1] for name in vars(base)}
    names = (name for name in own if not name.startswith("_") and name not in INNER)
    return {name: inspect.getattr_static(cls, name) for name in names}


def described(member: object) -> tuple[str, str | None]:
    kind, words = type(member).__name__, getattr(member, "__doc__", None)
    match member:
        case property():
            function = member.fget
        case cached_property():
            function = member.func
        case OwnOrById():
            function = member.__wrapped__
        case _:
            function = getattr(member, "__func__", member)
    assert callable(function)
    return f"{kind} {inspect.signature(function)}".replace("Async", "").replace("Opening[Self]", "Self"), words


@pytest.mark.parametrize(("original", "mirror"), PAIRS)
def test_both_classes_have_the_same_calls_with_the_same_signatures_and_words(original: type, mirror: type) -> None:
    ours = {name: member for name, member in public(mirror).items() if name != "as_async"}
    assert sorted(ours) == sorted(public(original))
    for name, member in public(original).items():
        signature, words = described(member)
        assert described(ours[name]) == (signature, words), name
        assert words, name
    assert mirror.__doc__ == original.__doc__


def test_a_context_of_the_sync_client_is_the_same_value_with_the_same_calls() -> None:
    known = Context("c", "python", "idle", 1, 2, copied_cell=3)
    original = AsyncContextHandle(known, AsyncTables(None), None)  # type: ignore[arg-type]  # it calls nothing
    mirror = ContextHandle(original)
    for name in ("get", "put", "complete", "inspect"):
        assert described(public(ContextHandle)[name]) == described(public(AsyncContextHandle)[name])
    for each in (original, mirror):
        assert isinstance(each, Context)
        assert repr(each) == repr(known)
        assert (each.context_id, each.generation, each.copied_cell, each.autosaved) == ("c", 1, 3, None)
        with pytest.raises(FrozenInstanceError):
            each.state = "busy"  # type: ignore[misc]
    assert mirror == ContextHandle(original)
    assert len({mirror, ContextHandle(original)}) == 1


@pytest.fixture
def fake() -> Iterator[FakeFleet]:
    made = FakeFleet()
    portal.run(made.__aenter__())
    yield made
    portal.run(made.__aexit__(None, None, None))


@pytest.fixture
def sandbox(fake: FakeFleet) -> Iterator[Sandbox]:
    with Fleet.connect(fake.address) as fleet, Sandbox.create(fleet=fleet, rpc_timeout=5.0) as made:
        yield made


def test_code_commands_and_files_work_without_await(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("cmd", output("a"), output("b"), finished())
    assert sandbox.run_code("code").ok
    assert sandbox.commands.run("cmd").stdout == "ab"
    handle = sandbox.commands.run("cmd", background=True)
    assert [piece.text for piece in handle] == ["a", "b"]
    assert handle.wait().stdout == "ab"
    sandbox.files.write("f", iter([b"x", b"y"]))
    assert sandbox.files.read("f") == "xy"
    assert list(sandbox.files.read("f", format="stream")) == [b"xy"]


def test_callbacks_run_in_the_thread_of_the_caller_and_may_call_the_sandbox(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("code", output("a"), finished())
    seen: list[object] = []

    def listen(_: str) -> None:
        seen.append(threading.current_thread())
        seen.append(sandbox.run_code("inner").outcome)

    sandbox.run_code("code", on_stdout=listen)
    assert seen == [threading.current_thread(), Outcome.OK]


def test_callbacks_that_come_after_their_call_are_not_left_to_a_caller_who_has_gone() -> None:
    def called(*_: object) -> None: ...

    relay = portal.Relay()
    given = {
        name: called
        for kind in (options.ManyOptions, options.ResumeOptions, options.CodeOptions, options.RunOptions)
        for name in kind.__annotations__
        if name.startswith("on_")
    }
    left = {name for name, callback in relay.wrap_options(given).items() if callback is called}
    assert left == {"on_review", "on_tool_ask", "on_preempted"}


def test_callbacks_of_a_handle_run_while_it_is_waited_for(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("cmd", output("a"), output("b"), finished())
    heard: list[str] = []
    handle = sandbox.commands.run("cmd", background=True, on_stdout=heard.append)
    assert heard == []
    handle.wait()
    assert heard == ["a", "b"]


def test_a_callback_that_raises_raises_from_the_call(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("code", output("a"), Hangs())

    def refuse(_: str) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        sandbox.run_code("code", on_stdout=refuse)


def test_many_threads_use_one_sandbox(fake: FakeFleet, sandbox: Sandbox) -> None:
    for number in range(64):
        fake.answer(str(number), output(str(number)), finished())
    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda number: sandbox.run_code(str(number)).logs.stdout, range(64)))
    assert outputs == [str(number) for number in range(64)]


async def test_it_works_inside_a_running_loop(fake: FakeFleet, sandbox: Sandbox) -> None:
    assert asyncio.get_running_loop().is_running()
    assert sandbox.run_code("code").ok


def test_waiting_in_the_facades_own_thread_is_refused_instead_of_hanging(sandbox: Sandbox) -> None:
    async def inside() -> None:
        sandbox.run_code("code")

    with pytest.raises(RuntimeError, match="wait for itself"):
        portal.run(inside())


def test_ctrl_c_cancels_the_call_and_interrupts_the_code(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("code", output("a"), Hangs())
    with pytest.raises(KeyboardInterrupt):
        sandbox.run_code("code", on_stdout=lambda _: signal.raise_signal(signal.SIGINT))
    assert sandbox.run_code("more").ok
    assert fake.called("Interrupt")


def test_ctrl_c_interrupts_the_code_before_the_sandbox_is_let_go_of(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("code", output("a"), Hangs())
    with (
        pytest.raises(KeyboardInterrupt),
        Sandbox.connect(sandbox.sandbox_id, fleet=Fleet.connect(fake.address)) as used,
    ):
        used.run_code("code", on_stdout=lambda _: signal.raise_signal(signal.SIGINT), execution_id="mine")
    assert [call.request.execution_id for call in fake.called("Interrupt")] == ["mine"]


def forked(body: str) -> str:
    """What a program says whose child says something too."""
    program = f"""
import gc, os, subprocess, sys
from sandfleet import _portal as portal
from sandfleet import Fleet, Sandbox

{textwrap.dedent(body)}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout + ended.stderr * (ended.returncode != 0)


SERVER = """
import asyncio
from sandfleet.testing import FakeFleet
async def serve():
    async with FakeFleet() as fake:
        print(fake.address, flush=True)
        await asyncio.Event().wait()
asyncio.run(serve())
"""


@pytest.fixture
def address() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    # As Ctrl-C, so that it removes its files.
    server.send_signal(signal.SIGINT)
    server.wait()
    server.stdout.close()


@pytest.mark.process
def test_a_child_forked_between_two_uses_has_a_loop_of_its_own(address: str) -> None:
    said = forked(f"""
        def use():
            with Fleet.connect({address!r}) as fleet:
                print(Sandbox.connect("s-1", fleet=fleet).run_code("code").outcome, flush=True)

        use()
        gc.collect()
        if (child := os.fork()) == 0:
            use()
            os._exit(0)
        os.waitpid(child, 0)
        use()
    """)
    assert said.split() == ["ok", "ok", "ok"]


@pytest.mark.process
@pytest.mark.parametrize(("seconds", "end"), [(0.3, "ok False ok"), (60, "Forked True ok")], ids=["ends", "stays"])
def test_a_fork_waits_for_the_threads_of_grpc_and_a_child_does_without_while_one_is_left(
    address: str, seconds: float, end: str
) -> None:
    said = forked(f"""
        import threading, time
        from pathlib import Path
        from sandfleet.errors import UnavailableError

        def use():
            with Fleet.connect({address!r}) as fleet:
                return Sandbox.connect("s-1", fleet=fleet).run_code("code").outcome

        def as_grpc_s():
            Path(f"/proc/self/task/{{threading.get_native_id()}}/comm").write_text("event_engine")
            named.set()
            time.sleep({seconds})

        use()
        gc.collect()
        named, thread = threading.Event(), threading.Thread(target=as_grpc_s, daemon=True)
        thread.start()
        named.wait()
        if (child := os.fork()) == 0:
            try:
                print(use(), flush=True)
            except UnavailableError as error:
                print(error.reason, flush=True)
            os._exit(0)
        lives = thread.is_alive()
        os.waitpid(child, 0)
        print(lives, use())
    """)
    assert " ".join(said.split()) == end


USES = [
    'sandbox.run_code("code")',
    'sandbox.commands.run("cmd")',
    "handle.wait()",
    'sandbox.files.read("f")',
    "sandbox.get_info()",
    "sandbox.forward(80)",
    "sandbox.set_timeout(5)",
    "sandbox.kill()",
    "fleet.list()",
]


@pytest.mark.process
def test_a_sandbox_in_a_forked_child_is_refused_in_words_and_the_child_ends_well(address: str) -> None:
    said = forked(f"""
        fleet = Fleet.connect({address!r})
        sandbox = Sandbox.connect("s-1", fleet=fleet)
        sandbox.run_code("code")
        handle = sandbox.commands.run("cmd", background=True)
        if (child := os.fork()) == 0:
            for use in {USES!r}:
                try:
                    eval(use)
                except Exception as error:
                    print(use, type(error).__name__, error.reason, flush=True)
            sandbox.close()
            fleet.close()
            del sandbox, fleet, handle
            gc.collect()
            sys.exit(0)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(sandbox.run_code("code").outcome)
    """)
    assert said.splitlines() == [*(f"{use} UnavailableError Forked" for use in USES), "child 0", "ok"]


@pytest.mark.process
def test_a_sandbox_in_another_event_loop_is_refused_in_words(address: str) -> None:
    async def connect() -> tuple[AsyncFleet, AsyncSandbox, AsyncCommandHandle]:
        fleet = await AsyncFleet.connect(address)
        sandbox = await AsyncSandbox.connect("s-1", fleet=fleet)
        return fleet, sandbox, await sandbox.commands.run("cmd", background=True)

    async def use() -> list[str]:
        reasons = []
        for call in (
            sandbox.run_code("code"),
            sandbox.files.read("f"),
            handle.wait(),
            sandbox.get_info(),
            sandbox.close(),
            fleet.list(),
            fleet.close(),
        ):
            with pytest.raises(PreconditionFailed, match="in another event loop than the one that opened it") as caught:
                await call
            reasons.append(caught.value.reason)
        return reasons

    with asyncio.Runner() as first, asyncio.Runner() as second:
        fleet, sandbox, handle = first.run(connect())
        assert second.run(use()) == ["OtherEventLoop"] * 7
        assert first.run(sandbox.run_code("code")).ok
        first.run(sandbox.close())
        first.run(fleet.close())


@pytest.mark.process
def test_a_child_forked_while_a_connection_is_open_gets_an_error_instead_of_hanging(address: str) -> None:
    said = forked(f"""
        sandbox = Sandbox.connect("s-1", fleet=Fleet.connect({address!r}))
        sandbox.run_code("code")
        if (child := os.fork()) == 0:
            try:
                Fleet.connect({address!r})
            except Exception as error:
                print(error.reason, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(sandbox.run_code("code").outcome)
    """)
    assert said.split() == ["Forked", "ok"]
