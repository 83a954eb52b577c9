"""A policy that follows a script: no model, no thinking.

A script is a list of moves. Each says on what it saw last it is made (error name, text, outcome, loss): the first one
that fits and was not made yet is the next. So a script branches on what really happened, but it can do only what is
written down.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sandfleet.codeact.conversation import Action, Conversation, FinalAnswer, GiveUp, Step
from sandfleet.values.execution import Outcome

Maker = Callable[[Conversation], Action]


@dataclass(frozen=True, slots=True)
class When:
    """What the last step has to have been. All that is given must hold; nothing given fits any step.

    error    the exact class name of the exception.
    text     a regular expression, searched in error, results and output (or in the observation where nothing was run).
    outcome  how the execution ended.
    lost     what was lost ("variables").
    first    there was no step yet.
    """

    error: str = ""
    text: str = ""
    outcome: Outcome | None = None
    lost: str = ""
    first: bool = False

    def fits(self, step: Step | None) -> bool:
        """Whether this is what was seen."""
        if step is None or self.first:
            return step is None and self.first
        evidence = step.evidence
        text = step.observation if evidence is None else evidence.text
        if self.text and not re.search(self.text, text):
            return False
        if evidence is None:
            return not (self.error or self.outcome or self.lost)
        return (
            (not self.error or (evidence.error is not None and evidence.error.name == self.error))
            and (self.outcome is None or evidence.outcome is self.outcome)
            and (not self.lost or self.lost in evidence.lost)
        )


@dataclass(frozen=True, slots=True)
class Move:
    """On `when`, do `action` (or what it makes of the conversation), at most `times` in a run."""

    when: When
    action: Action | Maker
    times: int = 1


@dataclass(frozen=True, slots=True)
class ScriptedPolicy:
    """Plays a script. One object serves any number of runs: what was made already is read from the conversation."""

    name: str
    moves: tuple[Move, ...]

    @property
    def summary(self) -> str:
        """What this is, for people who watch it."""
        return f"scripted policy {self.name!r}: {len(self.moves)} written moves that branch on real output; no model"

    async def __call__(self, conversation: Conversation) -> Action:
        """Make the next move."""
        index = chosen(self.moves, conversation)
        if index is None:
            last = conversation.last
            return GiveUp(
                f"the script {self.name!r} has no move for: {last.observation[:300] if last else 'the start'}"
            )
        action = self.moves[index].action
        return action(conversation) if callable(action) else action


def chosen(moves: tuple[Move, ...], conversation: Conversation) -> int | None:
    """Index of the next move; None when no move fits. Pure: the moves made so far are found by replaying the choice."""
    made: Counter[int] = Counter()
    picked = _pick(moves, None, made)
    for step in conversation.steps:
        if picked is not None:
            made[picked] += 1
        picked = _pick(moves, step, made)
    return picked


def _pick(moves: tuple[Move, ...], last: Step | None, made: Counter[int]) -> int | None:
    fitting = (index for index, move in enumerate(moves) if made[index] < move.times and move.when.fits(last))
    return next(fitting, None)


def answer_from(pattern: str, text: str = "") -> Maker:
    """Make a final answer of what a pattern's groups found in the output of the last execution."""

    def make(conversation: Conversation) -> Action:
        last = conversation.last
        evidence = last.evidence if last else None
        match = re.search(pattern, evidence.output) if evidence else None
        if evidence is None or match is None:
            return GiveUp(f"cannot answer: the last output has nothing like {pattern!r}")
        return FinalAnswer(match.groups(), evidence.execution_id, text)

    return make
