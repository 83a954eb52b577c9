"""Egress lists of templates and sandboxes as names (pure): what is on them, and whether one lies within another."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from sandfleet_operator.api.egress import Credential, Name, canonical, check_place, entry, first_outside, parse
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
    return entry(one.host, one.host, one.ports, one.methods, one.paths)


def named(texts: Iterable[str]) -> list[EgressName]:
    """The hosts of a claim, as objects have them. Raises FleetError."""
    return [EgressName(one.host, one.ports, one.methods, one.paths) for one in map(parse, texts)]


def written(names: Iterable[Name]) -> list[dict[str, object]]:
    """The names as a CodeSandbox has them."""
    return list(map(_written, names))


def _written(one: Name) -> dict[str, object]:
    shown: dict[str, object] = {"host": one.host, "ports": list(one.ports)}
    if one.methods:
        shown["methods"] = list(one.methods)
    if one.paths:
        shown["paths"] = list(one.paths)
    return shown


def outside(wish: Egress, allowed: Egress, sets: Sets) -> str:
    """The first host of the wish that the allowed list does not have; empty: it has all. Raises FleetError."""
    return first_outside(names_of(wish, sets), names_of(allowed, sets)) if wish.by_name else ""


def ends_tls(egress: Egress, names: Iterable[Name]) -> bool:
    """Whether TLS to any host is ended outside: sandboxes then trust an authority of their own. `names` are its."""
    return bool(egress.credentials) or any(name.has_rules for name in names)


def first_unread(wish: Sequence[Name], allowed: Egress, names: Iterable[Name]) -> str:
    """The first entry with methods or paths, where the allowed list reads no requests; empty: it can be followed.

    Programs of its sandboxes would not trust the certificate by which requests are read. `names` are the allowed ones.
    """
    if ends_tls(allowed, names):
        return ""
    return next((f"{one.text} by methods or paths" for one in wish if one.has_rules), "")


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
