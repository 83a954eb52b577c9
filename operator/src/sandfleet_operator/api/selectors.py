"""Label selectors as kubectl writes them: `key=value`, `key==value`, `key!=value`, joined by commas."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.validate import check_label

MAX_TERMS = 64
TERM = re.compile(r"\s*([^=!,\s]+)\s*(==|=|!=)\s*([^=!,\s]*)\s*")


@dataclass(frozen=True, slots=True)
class Term:
    key: str
    value: str
    equal: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """A label that is not there is unequal to every value."""
        return (labels.get(self.key) == self.value) == self.equal


def parse_selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    """A predicate over labels; the empty selector matches all. Raises FleetError."""
    if not text.strip():
        return lambda _labels: True
    parts = text.split(",")
    if len(parts) > MAX_TERMS:
        raise ClaimReason.INVALID_SELECTOR.error(f"cannot select: {len(parts)} terms are more than {MAX_TERMS}")
    terms = [_parse_term(part) for part in parts]
    return lambda labels: all(term.matches(labels) for term in terms)


def _parse_term(text: str) -> Term:
    match = TERM.fullmatch(text)
    if match is None:
        raise ClaimReason.INVALID_SELECTOR.error(
            f"cannot select: {text.strip()[:100]!r} is not key=value, key==value or key!=value",
            text[:100],
        )
    key, operator, value = match.groups()
    check_label(key, value, doing="select")
    return Term(key, value, operator != "!=")
