"""The desk of reviews through random stories: at most once, and only what was looked at."""

import hashlib
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from sandfleet_executor.core.errors import BusyError
from sandfleet_executor.core.review.answers import Answer, AnswerError, AnswerReason, Verb
from sandfleet_executor.core.review.desk import MAX_PENDING, Desk
from sandfleet_executor.core.review.subject import Subject

CONTENTS = st.sampled_from([b"1", b"2", b"x = 1"])
VERBS = st.sampled_from(list(Verb))
EDIT = b"the edit"


class Stories(RuleBasedStateMachine):
    """A model beside the desk: which reviews wait, and how often something was let run or has changed."""

    looks = Bundle("looks")

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.waiting: dict[str, Subject] = {}
        self.decided: set[str] = set()
        self.runs = 0

    @rule(target=looks, content=CONTENTS, context=st.sampled_from(["a", "b"]), verb=VERBS, editable=st.booleans())
    def ask(self, content: bytes, context: str, verb: Verb, *, editable: bool) -> Answer:
        name = f"r{len(self.decided) + len(self.waiting)}"
        subject = Subject("InterpreterService/Execute", "cell", content, context_id=context, editable=editable)
        pending = self.desk.ask(name, subject, 0.0)
        self.waiting[name] = subject
        edit = hashlib.sha256(EDIT).hexdigest() if verb is Verb.EDIT else ""
        return Answer(name, pending.digest, self.desk.state, verb, "alice", edit_digest=edit)

    @rule(target=looks, look=looks)
    def look_again(self, look: Answer) -> Answer:
        return replace(look, state=self.desk.state)

    @rule(look=looks, swapped=CONTENTS)
    def answer_about_another_request(self, look: Answer, swapped: bytes) -> None:
        subject = self.waiting.get(look.review_id)
        digest = Subject("InterpreterService/Execute", "cell", swapped, context_id="c").digest.hex()
        self._refused(replace(look, digest=digest), AnswerReason.CHANGED if subject else AnswerReason.NOT_FOUND)

    @rule(look=looks)
    def swap_the_edit(self, look: Answer) -> None:
        if look.verb is Verb.EDIT and look.review_id in self.waiting and look.state == self.runs:
            editable = self.waiting[look.review_id].editable
            reason = AnswerReason.INVALID if editable else AnswerReason.NOT_EDITABLE
            self._refused(look, reason, b"another edit")

    @rule(look=looks)
    def answer(self, look: Answer) -> None:
        subject = self.waiting.get(look.review_id)
        content = EDIT if look.verb is Verb.EDIT else b""
        if subject is None:
            self._refused(look, AnswerReason.NOT_FOUND, content)
        elif look.verb is not Verb.DENY and look.state != self.runs:
            self._refused(look, AnswerReason.CHANGED, content)
        elif look.verb is Verb.EDIT and not subject.editable:
            self._refused(look, AnswerReason.NOT_EDITABLE, content)
        else:
            decision = self.desk.answer(look, content)
            if look.verb is Verb.VOTE:
                # The request waits for more votes.
                assert decision is None
                return
            assert decision.allowed == (look.verb is not Verb.DENY)
            assert decision.edited == (EDIT if look.verb is Verb.EDIT else None)
            self.runs += decision.allowed
            self._end(look.review_id)

    @rule()
    def change_without_a_review(self) -> None:
        self.desk.changed()
        self.runs += 1

    @rule(look=consumes(looks))
    def withdraw(self, look: Answer) -> None:
        assert self.desk.withdraw(look.review_id) == (look.review_id in self.waiting)
        if look.review_id in self.waiting:
            self._end(look.review_id)

    def _end(self, name: str) -> None:
        del self.waiting[name]
        self.decided.add(name)

    def _refused(self, look: Answer, reason: AnswerReason, content: bytes = b"") -> None:
        try:
            self.desk.answer(look, content)
        except AnswerError as error:
            assert error.reason is reason
        else:
            raise AssertionError("an answer that does not count was taken")

    @invariant()
    def what_waits_is_what_was_asked_and_not_answered(self) -> None:
        assert {one.id: one.subject for one in self.desk.pending()} == self.waiting
        assert self.desk.state == self.runs


TestStories = Stories.TestCase


def test_the_list_of_what_waits_is_bounded() -> None:
    desk = Desk()
    for number in range(MAX_PENDING):
        desk.ask(str(number), Subject("m", "cell", b"1"), 0.0)
    try:
        desk.ask("one more", Subject("m", "cell", b"1"), 0.0)
    except BusyError:
        desk.withdraw("0")
        desk.ask("one more", Subject("m", "cell", b"1"), 0.0)
    else:
        raise AssertionError("the list has no bound")


def test_no_two_requests_have_the_same_digest() -> None:
    one = Subject("m", "cell", b"content", settings="{}", context_id="a", name="b")
    others = [
        replace(one, method="n"),
        replace(one, content=b"content "),
        replace(one, settings="{ }"),
        replace(one, context_id="ab", name=""),
        replace(one, name="c"),
        replace(one, settings="{}content", content=b""),
    ]
    assert len({each.digest for each in (one, *others)}) == len(others) + 1
    # The agent's own words are no part of what is approved.
    assert replace(one, intent="please").digest == one.digest
