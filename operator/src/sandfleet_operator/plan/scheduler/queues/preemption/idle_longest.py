"""The session that is idle longest goes first; one that can be suspended goes before one that cannot."""

from collections.abc import Iterable, Sequence

from sandfleet_operator.plan.scheduler.queues.preemption import Candidate, Levels, Need
from sandfleet_operator.plan.scheduler.queues.quota import Verdict


def idle_longest(needs: Sequence[Need], levels: Levels, candidates: Sequence[Candidate]) -> list[Candidate]:
    """As few sessions as let the claims in, one claim after the other."""
    rest = sorted(candidates, key=lambda one: (not one.kept, -one.idle, one.sandbox_id))
    victims: list[Candidate] = []
    for need in needs:
        many, found = _one_after_the_other(need, levels, rest)
        found = _without_spare(need, levels, found, many)
        levels = _after(need, levels, found, many)
        rest = [one for one in rest if one not in found]
        victims += found
    return victims


def _one_after_the_other(need: Need, levels: Levels, candidates: Sequence[Candidate]) -> tuple[int, list[Candidate]]:
    """How many of the claims get in, and the sessions whose end lets them in."""
    after, rest, found = levels.copy(), list(candidates), list[Candidate]()
    for many in range(need.many):
        more = _enough(need, after, rest)
        if more is None:
            return many, found
        found += more
        rest = [one for one in rest if one not in more]
        after = _after(need, after, more, 1)
    return need.many, found


def _after(need: Need, levels: Levels, gone: Iterable[Candidate], many: int) -> Levels:
    """Once these have gone and so many claims are in."""
    after = levels.copy()
    for one in gone:
        after.release(one.queue, one.amount)
    for _ in range(many):
        after.use(need.queue, need.amount)
    return after


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
    return found if after.verdict(need.queue, need.amount) is Verdict.WITHIN else None


def _gives(one: Candidate, levels: Levels, need: Need) -> bool:
    lacks, borrowed = levels.lacks(need.queue, need.amount), levels.borrowed(one.queue)
    return any(lack > 0 and more > 0 and part > 0 for lack, more, part in zip(lacks, borrowed, one.amount, strict=True))


def _without_spare(need: Need, levels: Levels, found: list[Candidate], many: int) -> list[Candidate]:
    """Without those that later ones have made unnecessary, as they give more."""
    for one in reversed(found):
        rest = [other for other in found if other is not one]
        if many and _after(need, levels, rest, many - 1).verdict(need.queue, need.amount) is Verdict.WITHIN:
            found = rest
    return found
