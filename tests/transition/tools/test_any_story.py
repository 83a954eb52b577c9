"""The executor's calls and the host's ledger together, through random breaks, replacements and kills (Hypothesis).

Both are the product's. Each may be lied to: a host answers what it was not asked, an executor sends calls that no code
made. `MUTANTS` take one rule of either away; the machine finds each.
"""

from collections import Counter, deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sandfleet.tools import ledger
from sandfleet.tools.ledger import Failure as HostFailure
from sandfleet.tools.ledger import Ledger, Received, Reply, Run
from sandfleet.tools.values import Wire
from sandfleet.values.tools import Tool, ToolLimits
from sandfleet_executor.core.tools import calls
from sandfleet_executor.core.tools.calls import PATIENCE, Acknowledged, Calls, Cancelled, Sent
from sandfleet_executor.core.tools.values import Call, Caller, Failure, Kind, Value
from support.examples import examples
from transition.mutant import Mutant

pytestmark = pytest.mark.slow

ONCE, AGAIN = "once", "again"
# So small that a story reaches them.
BOUNDS = ((calls, "MAX_CALLS", 4), (calls, "MAX_NOTICES", 8), (ledger, "MAX_CALLS", 6), (ledger, "MAX_HELD", 60))
SENT, NOTICES, KNOWN, HELD = (value for _, _, value in BOUNDS)


def tool(name):
    return Tool(name=name, doc="", function=print, bind=dict, limits=ToolLimits(), idempotent=name == AGAIN)


TOOLS = {name: tool(name) for name in (ONCE, AGAIN)}


@dataclass
class Host:
    """One process of the host: what it remembers ends with it, but for its file: the answer of a call, or None."""

    name: str
    ledger: Ledger = field(default_factory=lambda: Ledger(TOOLS))
    # Functions that run, by the number of their run: (call id, tool). They may outlive their call.
    at_work: dict = field(default_factory=dict)
    file: dict = field(default_factory=dict)


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

    @rule(count=st.integers(2, 6))
    def ask_many(self, count):
        for _ in range(count):
            self.ask(ONCE, 0)

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
        self.host.file = {name: one for name, one in self.host.file.items() if name in self.calls.outstanding}
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

    @rule()
    def kill_the_host_and_go_on_from_its_file(self):
        """The process that opens the file is the same host for the executor."""
        before = self.host
        used = {name: before.ledger.used(name) for name in TOOLS}
        callers = {caller: dict(counted) for caller, counted in before.ledger._by_caller.items()}
        self.host = Host(before.name, Ledger(TOOLS, dict(before.file), used, callers), file=before.file)
        assert self.host.ledger._by_caller == before.ledger._by_caller
        assert self.host.ledger.ran.get(ONCE, 0) == before.ledger.ran.get(ONCE, 0)

    @precondition(lambda self: self.stream and self.stream.host is self.host)
    @rule()
    def kill_the_host_while_a_call_runs_and_go_on(self):
        self.ask(ONCE, 0)
        self.deliver_all()
        self.kill_the_host_and_go_on_from_its_file()
        self.connect()
        self.deliver_all()

    @rule(seconds=st.sampled_from((1.0, PATIENCE)))
    def wait(self, seconds):
        self.now += seconds
        self.take_answers(self.calls.expire(self.now))
        assert self.stream or seconds < PATIENCE or not self.calls.outstanding, "a call waits without an end"

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
                size = len(call.id)
                known = Received(call.id, call.tool, Wire(b"x" * size), call.caller.execution_id, again=again)
                self.act(ledger.receive(known))
            case Cancelled(call_id):
                ledger.cancel(call_id)
                self.host.file.pop(call_id, None)
            case Acknowledged(call_id):
                ledger.acknowledge(call_id)
                if self.host.file.get(call_id) is not None:
                    del self.host.file[call_id]

    def act(self, action):
        match action:
            case Run(call, tool):
                self.ran[call.id] += 1
                self.host.at_work[next(self.names)] = (call.id, tool.name)
                self.host.file[call.id] = None
            case Reply() as reply if self.stream and self.stream.host is self.host:
                self.stream.up.append(reply)

    @precondition(lambda self: self.host.at_work)
    @rule(data=st.data())
    def finish_at_the_host(self, data):
        """A function ends, whether its call is wanted or not."""
        self.finish(data.draw(st.sampled_from(sorted(self.host.at_work))))

    def finish(self, number):
        call_id, name = self.host.at_work.pop(number)
        self.host.ledger.ended(name)
        self.ended.add(call_id)
        if call_id in self.host.file:
            self.host.file[call_id] = Wire(call_id.encode())
        self.act(self.host.ledger.finish(call_id, Wire(call_id.encode())))

    # Lies

    @precondition(lambda self: self.stream)
    @rule(data=st.data(), copies=st.sampled_from((1, 20)))
    def answer_what_was_not_asked(self, data, copies):
        """Unknown ids, and calls that this stream's host was not sent."""
        known = [one.call.id for one in self.calls._open.values() if self.stream.host.name not in one.hosts]
        call_id = data.draw(st.sampled_from([*known, "unknown"]))
        for _ in range(copies):
            assert self.calls.answer(self.stream.number, call_id, Value(b"a lie")) is None

    @precondition(lambda self: self.stream and self.calls.outstanding)
    @rule(data=st.data())
    def answer_on_a_stream_that_was_replaced(self, data):
        call_id = data.draw(st.sampled_from(self.calls.outstanding))
        assert self.calls.answer(self.stream.number - 1, call_id, Value(b"a lie")) is None

    @precondition(lambda self: self.stream and self.stream.host is self.host)
    @rule(count=st.integers(1, 8), name=st.sampled_from((ONCE, "missing")), size=st.sampled_from((1, HELD)))
    def send_calls_that_no_code_made(self, count, name, size):
        """None of their answers reaches the code: the executor lies for itself."""
        for _ in range(count):
            call = Received(f"forged-{next(self.names)}", name, Wire(b"x" * size))
            match self.host.ledger.receive(call):
                case Run(call, tool):
                    self.host.at_work[next(self.names)] = (call.id, tool.name)

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

    @invariant()
    def what_has_run_is_known_until_its_answer_has_arrived(self):
        for call_id in self.calls.outstanding:
            if self.ran[call_id] and self.host.name in self.calls._open[call_id].hosts and self.answers_to(call_id):
                assert call_id in self.host.ledger._known, "an answer is forgotten that no code has"

    def answers_to(self, call_id):
        """Whether the present host ran it."""
        return call_id in self.ended and self.ran[call_id] == 1 and self.calls._open[call_id].hosts == {self.host.name}

    @invariant()
    def everything_is_bounded(self):
        assert len(self.calls.outstanding) <= SENT
        assert len(self.calls._notices) <= NOTICES + SENT
        book = self.host.ledger
        assert len(book._known) <= KNOWN
        assert book._held == sum(state.size for state in book._known.values())
        assert sum(state.size for state in book._known.values() if not isinstance(state, HostFailure)) <= HELD
        assert +book._running == Counter(name for _, name in self.host.at_work.values())
        assert len(self.host.at_work) <= KNOWN

    @precondition(lambda self: self.stream and self.stream.host is self.host)
    @rule()
    def give_up_what_runs(self):
        self.ask(ONCE, 0)
        self.deliver_all()
        self.withdraw_all()
        self.deliver_all()

    def withdraw_all(self):
        for call_id in self.calls.outstanding:
            self.calls.withdraw(call_id)
            self.answered[call_id] = None

    @precondition(lambda self: self.stream and self.stream.host is self.host)
    @rule()
    def deliver_all(self):
        """When all messages have arrived, nothing runs for code that does not wait."""
        while True:
            self.send_down()
            if not self.stream.down:
                break
            self.receive_at_the_host()
        running = {one for one in self.host.ledger.running if not one.startswith("forged")}
        assert running <= set(self.calls.outstanding), "a call runs on that no code waits for"

    def teardown(self):
        """With a stream that holds, each call that waits gets its answer, and the host forgets all."""
        self.connect()
        for _ in range(4 * len(self.asked) + 4):
            self.send_down()
            while self.stream.down:
                self.receive_at_the_host()
            for number in list(self.host.at_work):
                self.finish(number)
            while self.stream.up:
                self.receive_at_the_executor()
        self.a_result_is_that_of_its_own_call_and_of_one_that_ran()
        assert self.answered.keys() == self.asked.keys()
        assert not self.host.ledger.running
        assert self.calls.outstanding == ()
        assert (self.host.ledger._held, self.host.ledger._known) == (0, {})


@contextmanager
def small_bounds():
    with ExitStack() as stack:
        for module, name, value in BOUNDS:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def play(**options):
    run_state_machine_as_test(Story, settings=settings(stateful_step_count=50, deadline=None, **options))


def test_any_story_ends_well():
    with small_bounds():
        play(max_examples=examples(60))


def _forgets_all(self, outstanding):
    """Forget answers too."""
    for call_id in list(self._known):
        self.cancel(call_id)
    return []


def _unkept(self, call_id, answer):
    """Answer, and forget it."""
    self._forget(call_id)
    return Reply(call_id, answer)


def _kept(self, call_id, failure):
    """Keep each refusal."""
    self._keep(call_id, failure)
    return Reply(call_id, failure)


_RECEIVE, _CONNECT, _BEGIN = Ledger.receive, Calls.connect, Ledger.__init__


def _from_no_file(self, tools, *_):
    """Read nothing of what a killed process has left."""
    _BEGIN(self, tools)


def _only_answers(self, tools, calls=None, used=None, callers=None):
    """Read what has ended, and not what may have run."""
    _BEGIN(self, tools, {name: one for name, one in (calls or {}).items() if one is not None}, used, callers)


def _no_callers(self, tools, calls=None, used=None, _callers=None):
    """Count the calls of each execution anew."""
    _BEGIN(self, tools, calls, used)


def _new(self, call):
    """Take each call for one that no other host had."""
    return _RECEIVE(self, Received(call.id, call.tool, call.arguments, call.execution_id))


def _not_sent_again(self, *host):
    answered = _CONNECT(self, *host)
    self._unsent.clear()
    return answered


def _believed(self, stream, call_id, answer):
    """Take an answer from any host and stream."""
    if call_id not in self._open:
        return None
    self._remove(call_id)
    return call_id, answer


def _in_silence(self, call_id):
    """Do not tell the host."""
    if call_id in self._open:
        self._remove(call_id)


def _always(self, call):
    self._open[call.id], self._unsent[call.id] = calls._Open(call), None


MUTANTS = (
    Mutant("a host that goes on reads no file", play, ((Ledger, "__init__", _from_no_file),)),
    Mutant("a host that goes on runs what may have run", play, ((Ledger, "__init__", _only_answers),)),
    Mutant("a host that goes on forgets who called", play, ((Ledger, "__init__", _no_callers),)),
    Mutant("a new stream makes the host forget answers", play, ((Ledger, "resume", _forgets_all),)),
    Mutant("the host keeps no answer until it has arrived", play, ((Ledger, "finish", _unkept),)),
    Mutant("the host believes that each call is new", play, ((Ledger, "receive", _new),)),
    Mutant("the host does not remember what runs", play, ((Ledger, "_keep", lambda *_: None),)),
    Mutant("the host keeps each refusal", play, ((Ledger, "_refused", _kept),)),
    Mutant("a function that ends is not counted", play, ((Ledger, "ended", lambda *_: None),)),
    Mutant("the host runs any number of calls", play, ((Ledger, "_refusal", lambda *_: None),)),
    Mutant("a cancelled call goes on", play, ((Ledger, "cancel", lambda *_: None),)),
    Mutant("acknowledged answers are kept", play, ((Ledger, "acknowledge", lambda *_: None),)),
    Mutant("calls are not sent again", play, ((Calls, "connect", _not_sent_again),)),
    Mutant("any host answers any call", play, ((Calls, "answer", _believed),)),
    Mutant("the host is not told that a call is given up", play, ((Calls, "withdraw", _in_silence),)),
    Mutant("a call waits for a host without an end", play, ((Calls, "expire", lambda *_: []),)),
    Mutant("notices about lies are not bounded", play, ((calls, "MAX_NOTICES", 10**9),)),
    Mutant("calls without an answer are not bounded", play, ((Calls, "ask", _always),)),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.point.replace(" ", "-") for one in MUTANTS])
def test_the_machine_finds_what_a_missing_rule_does(mutant):
    with small_bounds(), mutant.applied(), pytest.raises((AssertionError, KeyError)):
        mutant.finder(max_examples=2000, derandomize=True, database=None, phases=[Phase.generate])
