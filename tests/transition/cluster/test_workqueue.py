"""The work queue, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from sandfleet_operator.cluster.workqueue import TURN, WorkQueue
from transition.fake_time import run


class Work:
    """Records when each key started; `answers` are the delays to return or errors to raise."""

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


def test_a_waiting_key_is_queued_once():
    assert worked(lambda queue: [queue.add("a") for _ in range(5)], Work()).begun == [("a", 0.0)]


def test_keys_behind_let_others_go_first_and_have_their_turn_from_time_to_time():
    def script(queue):
        for number in range(5):
            queue.add(f"b{number}", behind=True)
        for number in range(8):
            queue.add(f"a{number}")

    begun = [key for key, _ in worked(script, Work(), workers=1).begun]
    assert begun == ["a0", "a1", "a2", "b0", "a3", "a4", "a5", "b1", "a6", "a7", "b2", "b3", "b4"]


def test_a_key_behind_that_is_added_alone_comes_to_the_front_and_is_worked_on_once():
    queues = []

    async def script(queue):
        queues.append(queue)
        for _ in range(3):
            for key in "abc":
                queue.add(key, behind=True)
            queue.add("c")
            queue.add("c", behind=True)
            assert len(queue) == 3
            await asyncio.sleep(10)
        queue.add("d", behind=True)
        queue.add("d")

    begun = [key for key, _ in worked(script, Work(), workers=1).begun]
    assert begun == [*"cab" * 3, "d"]
    assert not queues[0]._behind


def test_a_key_added_while_its_worker_runs_is_requeued_and_never_runs_twice_at_once():
    async def script(queue):
        queue.add("a")
        await asyncio.sleep(0.5)
        for _ in range(3):
            queue.add("a")

    work = worked(script, Work())
    assert work.begun == [("a", 0.0), ("a", 1.0)]
    assert not work.doubled


def test_each_worker_runs_one_key():
    work = worked(lambda queue: [queue.add(key) for key in "abcdef"], Work(), workers=2)
    assert work.most == 2
    assert [key for key, _ in work.begun] == list("abcdef")
    assert work.begun[-1] == ("f", 2.0)


def test_a_returned_delay_requeues_the_key():
    work = worked(lambda queue: queue.add("a"), Work({"a": [5.0, 0.0]}))
    assert work.begun == [("a", 0.0), ("a", 6.0), ("a", 7.0)]


def test_an_event_replaces_the_timer_of_a_key():
    async def script(queue):
        queue.add("a")
        await asyncio.sleep(3)
        queue.add("a")

    assert worked(script, Work({"a": [50.0]})).begun == [("a", 0.0), ("a", 3.0)]


def test_of_two_delays_the_earlier_end_counts():
    def script(queue):
        queue.add_later("a", 20)
        queue.add_later("a", 10)
        queue.add_later("a", 30)

    assert worked(script, Work()).begun == [("a", 10.0)]


def test_a_delay_does_not_hold_up_a_waiting_key():
    def script(queue):
        queue.add("a")
        queue.add_later("a", 10)

    assert worked(script, Work()).begun == [("a", 0.0)]


def test_failed_keys_are_requeued_after_pauses_that_double_up_to_a_minute():
    work = worked(lambda queue: queue.add("a"), Work({"a": [ValueError("no")] * 10}, takes=0), seconds=400)
    times = [at for _, at in work.begun]
    pauses = [round(after - before, 6) for before, after in pairwise(times)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_success_resets_the_pause():
    no = ValueError("no")
    work = worked(lambda queue: queue.add("a"), Work({"a": [no, no, 5.0, no]}, takes=0))
    assert [at for _, at in work.begun] == [0.0, 0.5, 1.5, 6.5, 7.0]


def test_retry_after_delays_the_next_attempt():
    class Busy(Exception):
        retry_after = 7.0

    work = worked(lambda queue: queue.add("a"), Work({"a": [Busy()]}, takes=0))
    assert [at for _, at in work.begun] == [0.0, 7.0]


def test_a_failed_key_does_not_delay_others():
    work = worked(lambda queue: [queue.add("a"), queue.add("b")], Work({"a": [ValueError("no")]}, takes=0), workers=1)
    assert work.begun == [("a", 0.0), ("b", 0.0), ("a", 0.5)]


def test_a_forgotten_key_is_not_requeued():
    def script(queue):
        queue.add_later("a", 10)
        queue.forget("a")

    assert worked(script, Work()).begun == []


def test_the_queue_reports_busy_keys_and_its_length():
    seen = []

    async def script(queue):
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(0.5)
        seen.append((len(queue), queue.is_busy(lambda key: key == "a"), queue.is_busy(lambda key: key == "c")))

    worked(script, Work(), workers=2)
    assert seen == [(3, True, False)]


def test_rounds_that_wait_for_nothing_let_others_have_their_turn():
    turns, rounds = [], []

    async def work(key):
        rounds.append(key)

    async def others():
        while True:
            turns.append(len(rounds))
            await asyncio.sleep(0)

    async def go():
        queue = WorkQueue(work, workers=32)
        running = [asyncio.create_task(queue.run()), asyncio.create_task(others())]
        await asyncio.sleep(0)
        for key in range(200):
            queue.add(key)
        while len(rounds) < 200:
            await asyncio.sleep(0)
        for task in running:
            task.cancel()

    run(go())
    assert max(later - before for before, later in pairwise(turns)) <= TURN
