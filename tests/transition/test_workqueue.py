"""Keys and workers, on a clock that jumps."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from sandfleet_operator.effects.workqueue import WorkQueue
from transition.fake_time import run


class Work:
    """What was begun when, with what it is to answer: seconds, or an error."""

    def __init__(self, answers: dict | None = None, takes: float = 1.0) -> None:
        self.answers, self.takes = answers or {}, takes
        self.begun: list[tuple[str, float]] = []
        self.now: Counter[str] = Counter()
        self.most, self.doubled = 0, False

    async def __call__(self, key: str) -> float | None:
        self.begun.append((key, asyncio.get_running_loop().time()))
        self.now[key] += 1
        self.doubled |= self.now[key] > 1
        self.most = max(self.most, self.now.total())
        await asyncio.sleep(self.takes)
        self.now[key] -= 1
        answers = self.answers.get(key, [])
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def worked(script: Callable[[WorkQueue[str]], object], work: Work, *, workers: int = 2, seconds: float = 200) -> Work:
    """The queue runs from 0 on; `script` may be a coroutine."""

    async def go() -> None:
        queue: WorkQueue[str] = WorkQueue(work, workers)
        running = asyncio.create_task(queue.run())
        await asyncio.sleep(0)
        done = script(queue)
        if asyncio.iscoroutine(done):
            await done
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(go())
    return work


def test_a_key_that_waits_is_there_once():
    assert worked(lambda queue: [queue.add("a") for _ in range(5)], Work()).begun == [("a", 0.0)]


def test_a_key_that_is_asked_for_while_it_is_worked_on_comes_once_more_and_never_beside_itself():
    async def script(queue):
        queue.add("a")
        await asyncio.sleep(0.5)
        for _ in range(3):
            queue.add("a")

    work = worked(script, Work())
    assert work.begun == [("a", 0.0), ("a", 1.0)]
    assert not work.doubled


def test_as_many_are_worked_on_as_there_are_workers():
    work = worked(lambda queue: [queue.add(key) for key in "abcdef"], Work(), workers=2)
    assert work.most == 2
    assert [key for key, _ in work.begun] == list("abcdef")
    assert work.begun[-1] == ("f", 2.0)


def test_one_that_asks_for_another_look_gets_it():
    work = worked(lambda queue: queue.add("a"), Work({"a": [5.0, 0.0]}))
    assert work.begun == [("a", 0.0), ("a", 6.0), ("a", 7.0)]


def test_an_earlier_event_takes_the_place_of_the_look_to_come():
    async def script(queue):
        queue.add("a")
        await asyncio.sleep(3)
        queue.add("a")

    assert worked(script, Work({"a": [50.0]})).begun == [("a", 0.0), ("a", 3.0)]


def test_of_two_wishes_the_earlier_one_counts():
    def script(queue):
        queue.add_later("a", 20)
        queue.add_later("a", 10)
        queue.add_later("a", 30)

    assert worked(script, Work()).begun == [("a", 10.0)]


def test_a_wish_for_later_does_not_hold_up_a_key_that_waits():
    def script(queue):
        queue.add("a")
        queue.add_later("a", 10)

    assert worked(script, Work()).begun == [("a", 0.0)]


def test_failures_come_back_after_pauses_that_double_up_to_a_minute():
    work = worked(lambda queue: queue.add("a"), Work({"a": [ValueError("no")] * 10}, takes=0), seconds=400)
    times = [at for _, at in work.begun]
    pauses = [round(after - before, 6) for before, after in pairwise(times)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_success_ends_the_doubling():
    no = ValueError("no")
    work = worked(lambda queue: queue.add("a"), Work({"a": [no, no, 5.0, no]}, takes=0))
    assert [at for _, at in work.begun] == [0.0, 0.5, 1.5, 6.5, 7.0]


def test_whoever_says_when_to_come_back_is_not_asked_before():
    class Busy(Exception):  # noqa: N818 - it is no error of ours
        retry_after = 7.0

    work = worked(lambda queue: queue.add("a"), Work({"a": [Busy()]}, takes=0))
    assert [at for _, at in work.begun] == [0.0, 7.0]


def test_a_failure_of_one_key_holds_no_other_up():
    work = worked(lambda queue: [queue.add("a"), queue.add("b")], Work({"a": [ValueError("no")]}, takes=0), workers=1)
    assert work.begun == [("a", 0.0), ("b", 0.0), ("a", 0.5)]


def test_what_is_forgotten_does_not_come_back():
    def script(queue):
        queue.add_later("a", 10)
        queue.forget("a")

    assert worked(script, Work()).begun == []


def test_it_says_what_is_worked_on_and_how_much_there_is_to_do():
    seen = []

    async def script(queue):
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(0.5)
        seen.append((len(queue), queue.is_busy(lambda key: key == "a"), queue.is_busy(lambda key: key == "c")))

    worked(script, Work(), workers=2)
    assert seen == [(3, True, False)]
