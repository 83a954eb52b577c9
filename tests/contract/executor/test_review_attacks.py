"""Ways to run what no reviewer has approved, each beside the same where nothing defends: there it works."""

import asyncio
import io
import json
import signal
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.reviewer import asked, done, refused, reviewing
from sandfleet.errors import AccessDenied, NotFoundError, PreconditionFailed
from sandfleet.values.services import ServiceSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "open('/workspace/owned', 'w').close()\n"


def wheel() -> bytes:
    """A package with the module `planted`."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("planted.py", EVIL)
        archive.writestr("evil-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
        archive.writestr("evil-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("evil-1.dist-info/RECORD", "")
    return data.getvalue()


async def nothing(_sandbox):
    return None


@dataclass(frozen=True)
class Way:
    """A way to plant a module, or what Python imports by itself. `kind` is the review's."""

    kind: str
    plant: Callable[[Any, Any], Awaitable[Any]]
    # Harmless by itself, and approved.
    prepare: Callable[[Any], Awaitable[Any]] = nothing
    # Approved too: it looks innocent.
    probe: str = "python3 -c 'import planted'"


async def folder(sandbox, path):
    (path / "planted.py").write_text(EVIL)
    await sandbox.files.upload(path, ".")


WAYS = {
    "a file": Way("file", lambda sandbox, _: sandbox.files.write("planted.py", EVIL)),
    "a new name": Way(
        "file",
        lambda sandbox, _: sandbox.files.rename("notes.txt", "planted.py"),
        lambda sandbox: sandbox.files.write("notes.txt", EVIL),
    ),
    "sitecustomize": Way(
        "file",
        lambda sandbox, _: sandbox.files.write("lib/sitecustomize.py", EVIL),
        lambda sandbox: sandbox.commands.run("mkdir lib"),
        probe="PYTHONPATH=lib python3 -c pass",
    ),
    "sitecustomize through a symlink": Way(
        "file",
        lambda sandbox, _: sandbox.files.write("docs/sitecustomize.py", EVIL),
        lambda sandbox: sandbox.commands.run("mkdir lib && ln -s lib docs"),
        probe="PYTHONPATH=lib python3 -c pass",
    ),
    "terminal input": Way(
        "input",
        lambda _, terminal: terminal.send(f'echo "{EVIL.strip()}" > planted.py\r'),
        lambda sandbox: sandbox.pty.create(command=["bash", "--norc"]),
    ),
    "standard input": Way(
        "input",
        lambda _, command: command.send_stdin(EVIL),
        lambda sandbox: sandbox.commands.run("head -n 1 > planted.py", background=True, stdin=True),
    ),
    "a restored state": Way(
        "state",
        lambda sandbox, _: sandbox.states.restore("bomb"),
        lambda sandbox: saved(sandbox),  # noqa: PLW0108  it stands below
    ),
    "a package": Way(
        "cell",
        lambda sandbox, _: sandbox.run_code("%pip install -q --no-index ./evil-1-py3-none-any.whl"),
        lambda sandbox: sandbox.files.write("evil-1-py3-none-any.whl", wheel()),
    ),
    "a service": Way(
        "service",
        lambda sandbox, _: sandbox.services.apply([ServiceSpec(name="s", cmd="cp notes.txt planted.py; sleep 60")]),
        lambda sandbox: sandbox.files.write("notes.txt", EVIL),
    ),
}


async def saved(sandbox):
    """A state whose restoring writes the file."""
    await sandbox.run_code(
        "class Bomb:\n    def __reduce__(self):\n        return exec, (\"open('/workspace/owned', 'w').close()\",)\n"
        "bomb = Bomb()"
    )
    await sandbox.states.save("bomb")


@pytest.mark.parametrize("name", [*WAYS, "a folder"])
@pytest.mark.attack("plants code without a review", "it waits for the reviewer", control="in it")
async def test_no_way_to_plant_code_goes_past_a_reviewer(reviewed, reviewer, executor, name, tmp_path):
    way = WAYS.get(name) or Way("archive", lambda sandbox, _: folder(sandbox, tmp_path))
    sandbox = reviewed.sandbox
    prepared = await done(reviewer, way.prepare(sandbox))
    async with asked(way.plant(sandbox, prepared)) as task:
        review = await reviewer.next()
        assert review.kind == way.kind
        await reviewer.deny(review, "it plants code")
        try:
            assert (await task).outcome == "denied"
        except AccessDenied as error:
            assert error.reason == "ReviewDenied"
    await done(reviewer, sandbox.commands.run(way.probe))
    assert not await sandbox.files.exists("owned")
    # Control: where no reviewer looks, it runs.
    sandbox = executor.sandbox
    await way.plant(sandbox, await way.prepare(sandbox))

    async def runs():
        await sandbox.commands.run(way.probe)
        return await sandbox.files.exists("owned")

    await until(runs)


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _clean(reviewed, executor):
    """What a test leaves in the two sandboxes goes after it."""
    yield
    clean = "rm -rf owned planted.py notes.txt docs lib .sandfleet/packages *.whl a b link"
    await executor.sandbox.services.apply([])
    await executor.sandbox.commands.run(clean)
    async with reviewing(reviewed) as reviewer:
        await done(reviewer, reviewed.sandbox.commands.run(clean))


@pytest.mark.control("names a path whose end is not known")
async def test_a_review_says_where_a_symlink_leads(reviewed, reviewer):
    sandbox = reviewed.sandbox
    await done(reviewer, sandbox.commands.run("mkdir -p a/deep && ln -s a/deep link"))
    for call in (
        sandbox.files.write("link/new/x.py", "x"),
        sandbox.files.make_dir("link/new"),
        sandbox.files.remove("link/x.py"),
    ):
        async with asked(call):
            review = await reviewer.next()
            assert '_leads_to": "/workspace/a/deep/' in review.settings
        await until(reviewer.waiting_for_none)
    # Control: a path that leads where it says.
    async with asked(sandbox.files.write("a/deep/x.py", "x")):
        assert "leads_to" not in (await reviewer.next()).settings
    await until(reviewer.waiting_for_none)


@pytest.mark.attack("turns a symlink after the approval", "asked again", control="in it")
async def test_a_symlink_that_is_turned_after_the_approval_asks_again(reviewed, reviewer):
    sandbox = reviewed.sandbox
    await done(reviewer, sandbox.commands.run("mkdir -p a b && ln -s a link"))
    turning = "trap 'ln -sfn b link' USR1; echo ready; while :; do sleep 0.05; done"
    turner = await done(reviewer, sandbox.commands.run(turning, background=True))
    await anext(turner)
    async with asked(sandbox.files.write("link/x.py", EVIL)) as task:
        looked = await reviewer.next()
        assert "/workspace/a/x.py" in looked.settings
        await turner.signal(signal.SIGUSR1)

        async def turned():
            return (await sandbox.files.get_info("link")).symlink_target == "b"

        await until(turned)
        await reviewer.approve(looked)

        async def again():
            found = await reviewer.pending()
            return found[0] if found and found[0].review_id != looked.review_id else None

        second = await until(again)
        assert "/workspace/b/x.py" in second.settings
        assert not task.done()
        await reviewer.deny(second)
        with pytest.raises(AccessDenied):
            await task
    assert not await sandbox.files.exists("a/x.py")
    assert not await sandbox.files.exists("b/x.py")
    await turner.kill()
    # Control: where it stays as it is the approval holds.
    async with asked(sandbox.files.write("link/x.py", EVIL)) as task:
        await reviewer.approve(await reviewer.next())
        await task
    assert await sandbox.files.exists("b/x.py")


@pytest.mark.attack("changes a saved state after the approval", "asked again", control="in it")
async def test_a_restored_state_is_shown_by_what_it_has_and_asks_again_when_its_bytes_change(reviewed, reviewer):
    sandbox = reviewed.sandbox
    await done(reviewer, sandbox.run_code("rows = [1, 2, 3]"))
    await sandbox.states.save("kept")
    async with asked(sandbox.states.restore("kept")) as task:
        looked = await reviewer.next()
        shown = json.loads(looked.content)
        assert ("rows", "list") in {(one["name"], one["type"]) for one in shown["variables"]}
        # Another state of this name takes its place while the reviewer looks.
        await sandbox.states.save("kept")
        assert await refused(reviewer.approve(looked)) == ("FAILED_PRECONDITION", "ReviewChanged")
        (again,) = await reviewer.pending()
        await reviewer.approve(again)

        async def anew():
            return next((one for one in await reviewer.pending() if one.review_id != again.review_id), None)

        second = await until(anew)
        assert json.loads(second.content)["sha256"] != shown["sha256"]
        assert not task.done()
        await reviewer.approve(second)
        assert "rows" in {one.name for one in (await task).restored}
    # Control: where it stays as it is, one answer is enough.
    async with asked(sandbox.states.restore("kept")) as task:
        await reviewer.approve(await reviewer.next())
        assert "rows" in {one.name for one in (await task).restored}


async def test_a_state_that_there_is_not_is_said_before_a_reviewer_is_asked(reviewed, reviewer):
    with pytest.raises(NotFoundError):
        await reviewed.sandbox.states.restore("missing")
    assert await reviewer.pending() == []


@pytest.mark.attack("names a path whose end is not known", "refused")
async def test_a_path_whose_end_cannot_be_known_is_refused(reviewed):
    with pytest.raises(Exception, match=r"without \.\."):
        await reviewed.sandbox.files.write("missing/../link/x.py", EVIL)


CHANGES = {
    "a fresh start of the context": lambda sandbox: sandbox.restart_context(),
    "another context's end": lambda sandbox: sandbox.delete_context("other"),
    "a copy of the context": lambda sandbox: sandbox.fork_context(context_ids=["copy"]),
    "another state of the name": lambda sandbox: sandbox.states.save("state"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.attack("changes what an approval was for", "the approval is stale", control="in it")
async def test_what_changes_without_a_review_makes_an_approval_stale(reviewed, reviewer, change):
    sandbox = reviewed.sandbox
    await done(reviewer, sandbox.run_code("a_variable = 1"))
    async with asked(sandbox.files.write("notes.txt", "x")) as task:
        looked = await reviewer.next()
        await CHANGES[change](sandbox)
        assert await refused(reviewer.approve(looked)) == ("FAILED_PRECONDITION", "ReviewChanged")
        assert not task.done()
        # Control: a look from after it counts.
        await reviewer.approve(await reviewer.next())
        await task
    await sandbox.delete_context("copy")


@pytest.mark.attack("starts afresh to lose the guard", "the guard stays", control="in it")
async def test_a_fresh_start_does_not_take_the_guard_from_an_approved_cell(reviewed, reviewer):
    sandbox = reviewed.sandbox
    await done(reviewer, sandbox.run_code("def open(*_):\n    return 'guarded'"))
    async with asked(sandbox.run_code("open('/workspace/owned', 'w')")) as task:
        looked = await reviewer.next()
        restarting = asyncio.ensure_future(sandbox.restart_context())

        async def newer():
            found = await reviewer.pending()
            return not found or found[0].state > looked.state

        await until(newer)
        # What waits in the context ends with it.
        assert (await refused(reviewer.approve(looked)))[1] in {"ReviewChanged", "ReviewNotFound"}
        await restarting
        assert (await task).outcome in {"killed", "interrupted"}
    assert not await sandbox.files.exists("owned")
    # Control: in the new interpreter the same cell would have done it.
    await done(reviewer, sandbox.run_code("open('/workspace/owned', 'w')"))
    assert await sandbox.files.exists("owned")


@pytest_asyncio.fixture(loop_scope="session")
async def another(starting):
    async with starting(contract="reviewed") as made, reviewing(made) as reviewer:
        yield made, reviewer


@pytest.mark.attack("uses another sandbox's approval", "refused", control="in it")
async def test_an_approval_of_another_sandbox_opens_nothing(reviewed, reviewer, another):
    other, theirs = another
    async with asked(reviewed.sandbox.run_code("1")) as task, asked(other.sandbox.run_code("1")) as their_task:
        mine, stolen = await reviewer.next(), theirs.statement(await theirs.next())
        assert await refused(reviewer.send(stolen)) == ("PERMISSION_DENIED", "ApprovalInvalid")
        assert not task.done()
        # Control: there it is good.
        await theirs.send(stolen)
        assert (await their_task).outcome == "ok"
        await reviewer.approve(mine)
        assert (await task).outcome == "ok"


@pytest.mark.attack("uses another context's approval", "refused", control="in it")
async def test_an_approval_of_another_context_opens_nothing(reviewed, reviewer):
    sandbox = reviewed.sandbox
    await done(reviewer, sandbox.create_context("second"))
    async with asked(sandbox.run_code("1")) as one, asked(sandbox.run_code("1", context="second")) as two:
        found = {review.context_id: review for review in await reviewer.waiting(2)}
        assert found["default"].content == found["second"].content
        swapped = type(found["default"])()
        swapped.CopyFrom(found["default"])
        swapped.review_id = found["second"].review_id
        assert await refused(reviewer.approve(swapped)) == ("FAILED_PRECONDITION", "ReviewChanged")
        assert not one.done()
        assert not two.done()
        # Control: the same, about its own context.
        await reviewer.approve(found["second"])
        assert (await two).text == "1"
    await sandbox.delete_context("second")


@pytest.mark.attack("installs a package without a review", "refused", control="in it")
async def test_a_package_comes_in_by_no_call_of_its_own(reviewed, executor):
    """Installing is a cell or a command, which wait; completion, which could import it, is refused."""
    with pytest.raises(PreconditionFailed) as caught:
        await reviewed.sandbox.complete("import evil; evil.")
    assert caught.value.reason == "NotReviewable"
    # Control: where no reviewer looks, completion answers.
    assert await executor.sandbox.complete("import os; os.")
