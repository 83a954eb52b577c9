"""Egress lists of templates and sandboxes as names (pure): what is on them, and whether one lies within another."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from sandfleet_operator.api.egress import Credential, Name, canonical, check_place, first_outside, parse
from sandfleet_operator.api.kinds.template import Egress, EgressCredential, EgressName
from sandfleet_operator.api.reasons import ClaimReason

PLACEHOLDER = "sandfleet-credential-"

Sets = Mapping[str, Sequence[str]]


def names_of(egress: Egress, sets: Sets) -> tuple[Name, ...]:
    """All hosts of the list. Raises FleetError for what is no name, and for a set that the installation lacks."""
    found = [_name(one) for one in egress.names]
    for name in egress.sets:
        if name not in sets:
            known = ", ".join(sorted(sets)) or "none"
            why = f"the installation has no set {name[:60]!r}, only {known} (Helm value egress.sets)"
            raise ClaimReason.INVALID_EGRESS.error(f"cannot allow egress: {why}")
        found += map(parse, sets[name])
    return tuple(found)


def _name(one: EgressName) -> Name:
    if ":" in one.host:
        raise ClaimReason.INVALID_EGRESS.error(f"cannot allow egress to {one.host[:80]!a}: write its ports beside it")
    name = parse(one.host)
    return Name(name.host, one.ports) if one.ports else name


def named(texts: Iterable[str]) -> list[EgressName]:
    """The hosts of a claim, as objects have them. Raises FleetError."""
    return [EgressName(one.host, one.ports) for one in map(parse, texts)]


def written(names: Iterable[Name]) -> list[dict[str, object]]:
    """The names as a CodeSandbox has them."""
    return [{"host": one.host, "ports": list(one.ports)} for one in names]


def outside(wish: Egress, allowed: Egress, sets: Sets) -> str:
    """The first host of the wish that the allowed list does not have; empty: it has all. Raises FleetError."""
    return first_outside(names_of(wish, sets), names_of(allowed, sets)) if wish.by_name else ""


def credential(one: EgressCredential, placeholder: str = "", value: str = "") -> Credential:
    """What the egress process works with."""
    host, form = canonical(one.host), one.format.replace("{value}", "{key}")
    return Credential(host, one.header, form, value, one.env, placeholder if one.env else "")


def placeholder(template: str, one: EgressCredential) -> str:
    """The value of the variable in the sandbox. It is no secret: it means something in that template's sessions alone.

    `template` is NAMESPACE/NAME.
    """
    said = json.dumps([template, one.host, one.header, one.env])
    return f"{PLACEHOLDER}{hashlib.sha256(said.encode()).hexdigest()[:32]}"


def placeholders(template: str, egress: Egress) -> dict[str, str]:
    """The variables of its sandboxes that stand for secrets."""
    return {one.env: placeholder(template, one) for one in egress.credentials if one.env}


def check(egress: Egress, sets: Sets, *, is_installed: bool) -> None:
    """Whether the list of a template can be followed. Raises FleetError."""
    if not egress.by_name and not egress.credentials:
        return
    if not is_installed:
        why = "the installation has no egress by name (Helm value egress.enabled)"
        raise ClaimReason.INVALID_EGRESS.error(f"cannot allow hosts by name: {why}")
    names = names_of(egress, sets)
    for one in egress.credentials:
        check_place(credential(one), names)
