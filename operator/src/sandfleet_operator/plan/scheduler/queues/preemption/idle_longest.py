"""The session that is idle longest goes first; one that can be suspended goes before one that cannot."""

from collections.abc import Iterable, Sequence

from sandfleet_operator.plan.scheduler.queues.preemption import Candidate, Levels, Need
from sandfleet_operator.plan.scheduler.queues.quota import Verdict


def idle_longest(needs: Sequence[Need], levels: Levels, candidates: Sequence[Candidate]) -> list[Candidate]:
    """As few sessions as let the claims in, one claim after the other."""
    levels = levels.copy()
    rest = sorted(candidates, key=lambda one: (not one.kept, -one.idle, one.sandbox_id))
    victims: list[Candidate] = []
    for need in needs:
        for _ in range(need.many):
            found = _enough(need, levels, rest)
            if found is None:
                break
            for one in found:
                levels.release(one.queue, one.amount)
                rest.remove(one)
            victims += found
            levels.use(need.queue, need.amount)
    return victims


def _enough(need: Need, levels: Levels, candidates: Iterable[Candidate]) -> list[Candidate] | None:
    """The sessions whose end lets one claim in; None where all together do not."""
    found: list[Candidate] = []
    after = levels.copy()
    for one in candidates:
        verdict = after.verdict(need.queue, need.amount)
        if verdict is not Verdict.LENT:
            break
        if _gives(one, after, need):
            after.release(one.queue, one.amount)
            found.append(one)
    if after.verdict(need.queue, need.amount) is not Verdict.WITHIN:
        return None
    return _without_spare(need, after, found)


def _gives(one: Candidate, levels: Levels, need: Need) -> bool:
    lacks, borrowed = levels.lacks(need.queue, need.amount), levels.borrowed(one.queue)
    return any(lack > 0 and more > 0 and part > 0 for lack, more, part in zip(lacks, borrowed, one.amount, strict=True))


def _without_spare(need: Need, after: Levels, found: list[Candidate]) -> list[Candidate]:
    """Without those that a later one has made unnecessary, as it gives more."""
    for one in list(reversed(found)):
        trial = after.copy()
        trial.use(one.queue, one.amount)
        if trial.verdict(need.queue, need.amount) is Verdict.WITHIN:
            after.use(one.queue, one.amount)
            found.remove(one)
    return found
