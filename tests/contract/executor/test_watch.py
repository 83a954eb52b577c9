"""Watches: what changes is told, bounded, and without a hole in new directories."""

import asyncio
import contextlib

import pytest
from contract.executor.harness import PATIENCE, until
from sandfleet import FileEventType
from sandfleet.errors import InvalidArgument, LimitReached, NotADirectory

pytestmark = pytest.mark.asyncio(loop_scope="session")

CREATED, MODIFIED, DELETED, MOVED, OVERFLOW = FileEventType
MIB = 1 << 20


@contextlib.asynccontextmanager
async def watching(sandbox, path, *, recursive=True):
    await sandbox.files.make_dir(path)
    watch = await sandbox.files.watch_dir(path, recursive=recursive)
    try:
        yield watch
    finally:
        await watch.stop()


async def events_until(watch, wanted):
    """All events up to the one that is wanted, but for changes of what was just made or changed.

    A busy machine may look between the creation of a file and its close: then both are told.
    """
    seen, last = [], {}
    async with asyncio.timeout(PATIENCE):
        async for event in watch:
            if event.type is not MODIFIED or last.get(event.path) not in (CREATED, MODIFIED):
                seen.append(event)
            last[event.path] = event.type
            if wanted(event):
                return seen
    raise AssertionError("the watch ended")


def ends_at(path):
    return lambda event: event.path == path


def said(events):
    return [(event.type, event.path.rpartition("/")[2]) for event in events]


async def test_each_kind_of_change_is_told_with_its_path_in_order(sandbox):
    await sandbox.commands.run("mkdir -p kinds && cd kinds && echo 1 > old && echo 1 > going && echo 1 > from")
    async with watching(sandbox, "kinds") as watch:
        assert watch.path == "/workspace/kinds"
        await sandbox.commands.run(
            "cd kinds && echo 1 > new && echo 2 >> old && rm going && mv from to && mkdir d && rmdir d && touch end"
        )
        events = await events_until(watch, ends_at("/workspace/kinds/end"))
    assert said(events) == [
        (CREATED, "new"), (MODIFIED, "old"), (DELETED, "going"), (MOVED, "to"), (CREATED, "d"), (DELETED, "d"), (CREATED, "end")
    ]  # fmt: skip
    assert events[3].old_path == "/workspace/kinds/from"
    assert [event.is_dir for event in events] == [False] * 4 + [True] * 2 + [False]
    assert [event.sequence for event in events] == list(range(1, 8))


async def test_uploads_are_told_as_files_and_never_by_their_own_names(sandbox):
    async with watching(sandbox, "uploads") as watch:
        await sandbox.files.write("uploads/f", "1")
        await sandbox.files.write("uploads/f", "2")
        await sandbox.files.write("uploads/end", "")
        events = await events_until(watch, ends_at("/workspace/uploads/end"))
    assert {name for _, name in said(events)} == {"f", "end"}
    assert said(events)[0] == (CREATED, "f")


async def test_what_is_made_in_new_directories_at_once_is_all_told(sandbox):
    async with watching(sandbox, "fresh") as watch:
        await sandbox.commands.run(
            "cd fresh && for i in $(seq 60); do mkdir -p a$i/b/c && touch a$i/b/c/f; done; touch end"
        )
        wanted = {f"/workspace/fresh/a{number}/b/c/f" for number in range(1, 61)} | {"/workspace/fresh/end"}
        seen = set()
        async with asyncio.timeout(PATIENCE):
            async for event in watch:
                assert event.type is not OVERFLOW
                seen.add(event.path)
                if wanted <= seen:
                    break


async def test_a_directory_that_comes_from_elsewhere_is_told_with_what_is_in_it(sandbox):
    await sandbox.commands.run("mkdir -p elsewhere/sub && touch elsewhere/sub/f elsewhere/g")
    async with watching(sandbox, "into") as watch:
        await sandbox.commands.run("mv elsewhere into/here && touch into/end")
        events = await events_until(watch, ends_at("/workspace/into/end"))
        assert {(event.type, event.path) for event in events[:-1]} == {
            (CREATED, f"/workspace/into/here{inner}") for inner in ("", "/sub", "/sub/f", "/g")
        }
        await sandbox.commands.run("mv into/here away && touch into/end2")
        events = await events_until(watch, ends_at("/workspace/into/end2"))
        assert said(events[:-1]) == [(DELETED, "here")]


async def test_without_recursion_only_the_directory_s_own_names_are_told(sandbox):
    await sandbox.files.make_dir("flat/sub")
    async with watching(sandbox, "flat", recursive=False) as watch:
        await sandbox.commands.run("touch flat/sub/f flat/g outside-of-it flat/end")
        assert said(await events_until(watch, ends_at("/workspace/flat/end"))) == [(CREATED, "g"), (CREATED, "end")]


async def test_what_cannot_be_watched_is_refused(sandbox):
    await sandbox.files.write("file", "")
    with pytest.raises(NotADirectory):
        await sandbox.files.watch_dir("file")
    with pytest.raises(InvalidArgument, match="/tmp"):
        await sandbox.files.watch_dir("/tmp")


async def test_there_are_so_many_watches_and_one_that_ends_makes_room(fresh):
    watches = [await fresh.sandbox.files.watch_dir() for _ in range(16)]
    with pytest.raises(LimitReached) as caught:
        await fresh.sandbox.files.watch_dir()
    assert caught.value.reason == "TooManyWatches"
    await watches.pop().stop()

    async def another():
        try:
            watches.append(await fresh.sandbox.files.watch_dir())
        except LimitReached:
            return False
        return True

    await until(another)
    for watch in watches:
        await watch.stop()


async def test_a_reader_may_give_up_waiting_and_go_on_later(sandbox):
    async with watching(sandbox, "patient") as watch:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.2)
        await sandbox.files.write("patient/f", "x")
        assert (await asyncio.wait_for(anext(watch), PATIENCE)).path == "/workspace/patient/f"
        ending = asyncio.create_task(anext(watch, "the end"))
        await asyncio.sleep(0)
        await watch.stop()
        assert await asyncio.wait_for(ending, PATIENCE) == "the end"
        assert await anext(watch, "the end") == "the end"


# More than the queue of a watch and the buffers of a connection can hold, however slow the machine is.
FILES = 30_000
FLOOD = f"""
import os
os.makedirs('flood/x', exist_ok=True)
for number in range({FILES}):
    name = f'flood/x/{{number}}-' + 'n' * 150
    os.close(os.open(name, os.O_CREAT))
    os.unlink(name)
"""


async def test_a_flood_with_a_sleeping_reader_takes_no_memory_and_stalls_no_other_reader(fresh, neighbour):
    sandbox = fresh.sandbox
    async with watching(sandbox, "flood") as asleep, watching(sandbox, "flood") as reader:
        seen = []

        async def read():
            async for event in reader:
                seen.append(event.type)

        reading = asyncio.create_task(read())
        fresh.restart_peak()
        before = fresh.memory()
        flood = await sandbox.commands.run(["python3", "-c", FLOOD], background=True)
        for _ in range(10):
            assert (await sandbox.files.write("beside", "x")).size == 1
        assert (await flood.wait()).ok
        assert fresh.peak_memory() - before < 64 * MIB
        # Who did not read hears of what was lost; the events before and after are there.
        await sandbox.files.write("flood/end", "")
        events = await events_until(asleep, lambda event: event.type is OVERFLOW)
        assert len(events) < 2 * FILES
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        # More of the flood may be lost while this is written.
        last = events[-1]
        is_after = ends_at("/workspace/flood/after")
        while last.type is OVERFLOW:
            await sandbox.files.write("flood/after", "")
            last = (await events_until(asleep, lambda event: event.type is OVERFLOW or is_after(event)))[-1]
        await until(lambda: len(seen) > 100)
        reading.cancel()


async def test_a_watch_goes_on_when_the_executor_comes_back_and_says_so(starting):
    async with starting(restarts=True) as executor, watching(executor.sandbox, "back") as watch:
        executor.kill()
        await executor.back()
        await executor.open("session")
        event = await asyncio.wait_for(anext(watch), PATIENCE)
        assert event.type is OVERFLOW
        await executor.sandbox.files.write("back/f", "x")
        assert (await asyncio.wait_for(anext(watch), PATIENCE)).path == "/workspace/back/f"


async def test_what_a_killed_executor_had_on_its_way_is_gone_when_it_is_back(starting):
    async with starting(restarts=True, keeps_workspace=True) as executor:
        sandbox = executor.sandbox
        await sandbox.files.write("d/whole", "old")
        going, kill = asyncio.Event(), asyncio.Event()

        async def endless():
            yield b"x" * MIB
            yield b"x" * MIB
            going.set()
            await kill.wait()

        writing = asyncio.create_task(sandbox.files.write("d/whole", endless()))
        await going.wait()
        found = "find /workspace -name '.sandfleet-partial-*'"
        await until(lambda: _prints(sandbox, found))
        executor.kill()
        await executor.back()
        await executor.open("session")
        kill.set()
        await asyncio.wait([writing])
        writing.cancelled() or writing.exception()
        again = executor.client()
        assert (await again.commands.run(found)).stdout == ""
        assert await again.files.read("d/whole") == "old"


async def _prints(sandbox, command):
    return (await sandbox.commands.run(command)).stdout
