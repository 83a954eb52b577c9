"""The executor's calls and the host's ledger together, through random breaks, replacements and kills (Hypothesis)."""

from collections import Counter, deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandfleet.tools.ledger import Failure as HostFailure
from sandfleet.tools.ledger import Ledger, Received, Reply, Run
from sandfleet.tools.values import Wire
from sandfleet.values.tools import Tool, ToolLimits
from sandfleet_executor.core.tools.calls import PATIENCE, Acknowledged, Calls, Cancelled, Sent
from sandfleet_executor.core.tools.values import Call, Caller, Failure, Kind, Value

ONCE, AGAIN = "once", "again"


def tool(name):
    return Tool(name=name, doc="", function=print, bind=dict, limits=ToolLimits(), idempotent=name == AGAIN)


TOOLS = {name: tool(name) for name in (ONCE, AGAIN)}


@dataclass
class Host:
    """One process of the host: what it remembers ends with it."""

    name: str
    ledger: Ledger = field(default_factory=lambda: Ledger(TOOLS))


@dataclass
class Stream:
    """Messages on their way; both directions are lost when it breaks."""

    number: int
    host: Host
    down: deque = field(default_factory=deque)
    up: deque = field(default_factory=deque)


class Story(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.calls = Calls()
        self.names = iter(range(10**6))
        self.stream = None
        self.host = Host("host-0")
        # By call id: what the code asked, and what it was answered.
        self.asked = {}
        self.answered = {}
        # How often hosts ran a call, and which calls have ended there.
        self.ran = Counter()
        self.ended = set()

    def take_answers(self, answers):
        for call_id, answer in answers:
            assert call_id not in self.answered, "a call was answered twice"
            self.answered[call_id] = answer

    # The code

    @rule(name=st.sampled_from((ONCE, AGAIN, "missing")), execution=st.integers(0, 2))
    def ask(self, name, execution):
        call = Call(f"call-{next(self.names)}", name, Value(b"{}"), Caller(f"cell-{execution}"))
        self.asked[call.id] = call
        if (failure := self.calls.ask(call)) is not None:
            self.take_answers([(call.id, failure)])

    @precondition(lambda self: self.calls.outstanding)
    @rule(data=st.data())
    def give_up(self, data):
        call_id = data.draw(st.sampled_from(self.calls.outstanding))
        self.calls.withdraw(call_id)
        self.answered[call_id] = None

    @rule(execution=st.integers(0, 2))
    def end_the_execution(self, execution):
        caller = Caller(f"cell-{execution}")
        self.take_answers(self.calls.end(caller))
        assert not [one for one in self.calls.outstanding if self.asked[one].caller == caller]

    # The stream

    @rule()
    def connect(self):
        """The host opens a stream, in the place of one that may still be there."""
        number = next(self.names) + 1
        self.take_answers(self.calls.connect(number, self.host.name, TOOLS))
        self.host.ledger.resume(self.calls.outstanding)
        self.stream = Stream(number, self.host)

    @precondition(lambda self: self.stream)
    @rule()
    def break_the_stream(self):
        self.take_answers(self.calls.disconnect(self.stream.number, self.now, broken=True))
        self.stream = None

    @precondition(lambda self: self.stream)
    @rule()
    def stop_serving(self):
        self.take_answers(self.calls.disconnect(self.stream.number, self.now, broken=False))
        self.stream = None
        assert not self.calls.outstanding

    @rule()
    def kill_the_host(self):
        """Its stream breaks later, when the executor notices."""
        self.host = Host(f"host-{next(self.names)}")

    @rule(seconds=st.sampled_from((1.0, PATIENCE)))
    def wait(self, seconds):
        self.now += seconds
        self.take_answers(self.calls.expire(self.now))

    # Messages

    @precondition(lambda self: self.stream)
    @rule()
    def send_down(self):
        if (message := self.calls.take(self.stream.number)) is not None:
            self.stream.down.append(message)

    @precondition(lambda self: self.stream and self.stream.down and self.stream.host is self.host)
    @rule()
    def receive_at_the_host(self):
        ledger, message = self.host.ledger, self.stream.down.popleft()
        match message:
            case Sent(call, again):
                known = Received(call.id, call.tool, Wire(b"{}"), call.caller.execution_id, again=again)
                match ledger.receive(known):
                    case Run():
                        self.ran[call.id] += 1
                    case Reply() as reply:
                        self.stream.up.append(reply)
            case Cancelled(call_id):
                ledger.cancel(call_id)
            case Acknowledged(call_id):
                ledger.acknowledge(call_id)

    @precondition(lambda self: self.host.ledger.running)
    @rule(data=st.data())
    def finish_at_the_host(self, data):
        call_id = data.draw(st.sampled_from(self.host.ledger.running))
        reply = self.host.ledger.finish(call_id, Wire(call_id.encode()))
        self.ended.add(call_id)
        if reply and self.stream and self.stream.host is self.host:
            self.stream.up.append(reply)

    @precondition(lambda self: self.stream and self.stream.up)
    @rule()
    def receive_at_the_executor(self):
        reply = self.stream.up.popleft()
        answer = reply.answer
        if isinstance(answer, HostFailure):
            converted = Failure(Kind(answer.kind.value), answer.reason, answer.message, answer.may_have_run)
        else:
            converted = Value(answer.json, answer.blobs)
        if (found := self.calls.answer(self.stream.number, reply.call_id, converted)) is not None:
            self.take_answers([found])

    # What holds

    @invariant()
    def no_call_runs_twice_unless_it_may(self):
        twice = {call_id for call_id, count in self.ran.items() if count > 1}
        assert all(self.asked[call_id].tool == AGAIN for call_id in twice), twice

    @invariant()
    def a_result_is_that_of_its_own_call_and_of_one_that_ran(self):
        for call_id, answer in self.answered.items():
            if isinstance(answer, Value):
                assert answer.json == call_id.encode()
                assert call_id in self.ended

    @invariant()
    def a_call_that_may_have_run_never_says_that_it_has_not(self):
        for call_id, answer in self.answered.items():
            if isinstance(answer, Failure) and answer.kind is Kind.UNAVAILABLE and self.ran[call_id]:
                assert answer.may_have_run

    @invariant()
    def each_call_waits_or_is_answered(self):
        waiting = set(self.calls.outstanding)
        assert waiting.isdisjoint(self.answered)
        assert waiting | self.answered.keys() == self.asked.keys()

    def teardown(self):
        """With a stream that holds, each call that waits gets its answer, and the host forgets all."""
        self.connect()
        for _ in range(4 * len(self.asked) + 4):
            self.send_down()
            while self.stream.down:
                self.receive_at_the_host()
            for call_id in self.host.ledger.running:
                self.ended.add(call_id)
                self.stream.up.append(self.host.ledger.finish(call_id, Wire(call_id.encode())))
            while self.stream.up:
                self.receive_at_the_executor()
        self.a_result_is_that_of_its_own_call_and_of_one_that_ran()
        assert self.answered.keys() == self.asked.keys()
        assert not self.host.ledger.running
        assert self.calls.outstanding == ()


TestAnyStory = Story.TestCase
TestAnyStory.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
