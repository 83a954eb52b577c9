"""Requests of a reviewed sandbox wait here for their answers."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

from sandfleet_executor.core.access.token_claims import TokenError
from sandfleet_executor.core.errors import BadRequest, BusyError
from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.journal import bodies
from sandfleet_executor.core.journal.blobs import CODE_BYTES, blob
from sandfleet_executor.core.review import verdicts
from sandfleet_executor.core.review.answers import AnswerError, AnswerReason, read_answer
from sandfleet_executor.core.review.desk import Decision, Desk, Pending
from sandfleet_executor.core.review.subject import Subject
from sandfleet_executor.effects.executions.execution import Execution

MAX_WATCHERS = 8


class Reviews:
    """`claims_of` gives the claims of a statement that a key of the fleet has signed; it raises TokenError."""

    def __init__(
        self,
        audience: str,
        claims_of: Callable[[str], Mapping[str, Any]],
        *,
        required: bool,
        put: bodies.Put = bodies.unrecorded,
    ) -> None:
        self.required, self._put = required, put
        self._audience = audience
        self._claims_of = claims_of
        self._desk = Desk()
        self._waiting: dict[str, asyncio.Future[Decision]] = {}
        self._watchers: set[asyncio.Event] = set()

    @property
    def state(self) -> int:
        return self._desk.state

    def pending(self) -> Sequence[Pending]:
        return self._desk.pending()

    async def of_execution(self, execution: Execution, subject: Subject | None) -> Decision:
        """Whether the execution may run. One that is stopped while it waits may not."""
        if not self.required:
            return Decision(allowed=True)
        if subject is None:
            return Decision(allowed=False, reason="the executor cannot show it", unseen="NotReviewable")
        try:
            decision = await self.decide(replace(subject, execution_id=execution.id), execution.stopped)
        except BusyError as error:
            return Decision(allowed=False, reason=str(error), unseen="TooManyReviews")
        except BadRequest as error:
            return Decision(allowed=False, reason=str(error), unseen="NotReviewable")
        if decision.edited is not None:
            execution.recording.note(code=blob(decision.edited, CODE_BYTES), edited=True)
        return decision

    async def decide(self, subject: Subject, stopped: "asyncio.Future[Any] | None" = None) -> Decision:
        """Waits for the answer, or until `stopped`. Raises BusyError and BadRequest."""
        review = self._desk.ask(secrets.token_hex(8), subject, time.time())
        answered = self._waiting[review.id] = asyncio.get_running_loop().create_future()
        self._tell()
        try:
            await asyncio.wait((answered, stopped) if stopped else (answered,), return_when=asyncio.FIRST_COMPLETED)
            return answered.result() if answered.done() else Decision(allowed=False)
        finally:
            self._waiting.pop(review.id, None)
            if self._desk.withdraw(review.id):
                self._put("review", bodies.review(review.id, subject, None))
                self._tell()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """While something that needs no review changes the sandbox: looks from before and from meanwhile are old."""
        self._changed()
        try:
            yield
        finally:
            self._changed()

    def _changed(self) -> None:
        self._desk.changed()
        self._tell()

    def answer(self, statement: str, content: bytes) -> None:
        """Let a request go on, end it, or keep a vote. Raises AnswerError."""
        try:
            claims = self._claims_of(statement)
        except TokenError as error:
            raise AnswerError(AnswerReason.INVALID, "the fleet has not signed the statement") from error
        answer = read_answer(claims, self._audience, time.time())
        asked = next((one.subject for one in self._desk.pending() if one.id == answer.review_id), None)
        decision = self._desk.answer(answer, content)
        if asked is not None and decision is not None:
            self._put("review", bodies.review(answer.review_id, asked, answer))
            self._waiting[answer.review_id].set_result(decision)
        self._tell()

    async def changes(self) -> AsyncIterator[Sequence[Pending]]:
        """What waits, now and at each change. Raises BusyError."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise BusyError(f"cannot watch the reviews: {MAX_WATCHERS} are watching")
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while True:
                changed.clear()
                yield self.pending()
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed.set()


class Reviewable(Protocol):
    """What is asked of an execution, as a reviewer may change it: a frozen dataclass."""

    @property
    def subject(self) -> Subject | None: ...
    def told(self, notices: tuple[Notice, ...]) -> Self: ...
    def edited(self, content: bytes) -> Self: ...


AnyRequest = TypeVar("AnyRequest", bound=Reviewable)


def as_decided(request: AnyRequest, decision: Decision) -> AnyRequest:
    """The request as it may run, with what its agent is told of the review."""
    if request.subject is None:
        return request
    told = request.told(verdicts.notices(decision, request.subject.content))
    return told if decision.edited is None else told.edited(decision.edited)
