"""The sync façade: the same calls, from any thread, inside a running loop, after a fork."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandfleet import _background
from sandfleet.commands import AsyncCommandHandle, AsyncCommands
from sandfleet.files import AsyncFiles
from sandfleet.fleet import AsyncFleet
from sandfleet.sandbox import AsyncSandbox
from sandfleet.sync import Files, Fleet, Sandbox
from sandfleet.sync_commands import CommandHandle, Commands
from sandfleet.testing import FakeFleet, Hangs, finished, output
from sandfleet.values import Outcome

PAIRS = [
    (AsyncSandbox, Sandbox),
    (AsyncCommands, Commands),
    (AsyncCommandHandle, CommandHandle),
    (AsyncFiles, Files),
    (AsyncFleet, Fleet),
]
# What the async classes use among themselves, with protobuf in it.
INNER = {"access", "renew", "open_claim", "list_within", "get_within", "spans"}


def public(cls: type) -> dict[str, object]:
    names = (name for name in vars(cls) if not name.startswith("_") and name not in INNER)
    return {name: inspect.getattr_static(cls, name) for name in names}


def described(member: object) -> tuple[str, str | None]:
    if isinstance(member, property):
        member = member.fget
    kind = type(member).__name__ if isinstance(member, classmethod) else "method"
    function = getattr(member, "__func__", member)
    assert callable(function)
    return f"{kind} {inspect.signature(function)}".replace("Async", ""), function.__doc__


@pytest.mark.parametrize(("original", "mirror"), PAIRS)
def test_both_classes_have_the_same_calls_with_the_same_signatures_and_words(original: type, mirror: type) -> None:
    ours = {name: member for name, member in public(mirror).items() if name != "as_async"}
    assert sorted(ours) == sorted(public(original))
    for name, member in public(original).items():
        signature, words = described(member)
        assert described(ours[name]) == (signature, words), name
        assert words, name
    assert mirror.__doc__ == original.__doc__


@pytest.fixture
def fake() -> Iterator[FakeFleet]:
    made = FakeFleet()
    _background.run(made.__aenter__())
    yield made
    _background.run(made.__aexit__(None, None, None))


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
        _background.run(inside())


def test_ctrl_c_cancels_the_call_and_interrupts_the_code(fake: FakeFleet, sandbox: Sandbox) -> None:
    fake.answer("code", output("a"), Hangs())
    with pytest.raises(KeyboardInterrupt):
        sandbox.run_code("code", on_stdout=lambda _: signal.raise_signal(signal.SIGINT))
    assert sandbox.run_code("more").ok
    assert fake.called("Interrupt")


def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    program = """
        import os
        from sandfleet import _background
        from sandfleet.sync import Fleet, Sandbox
        from sandfleet.testing import FakeFleet

        fake = FakeFleet()
        _background.run(fake.__aenter__())
        with Sandbox.create(fleet=Fleet.connect(fake.address)) as sandbox:
            assert sandbox.run_code("code").ok
            if (child := os.fork()) == 0:
                again = Sandbox.connect(sandbox.sandbox_id, fleet=Fleet.connect(fake.address))
                os._exit(7 if again.run_code("code").ok else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            assert sandbox.run_code("code").ok
        print("done")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert ended.stdout == "done\n", ended.stderr
