"""The manifest of a snapshot: the one object that makes it exist, and what a restore of it may ask for."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.plan.snapshots.entries import MAX_ENTRIES, MAX_SIZE, Totals
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, corrupt, hostile

VERSION = 1
# Tenants, snapshots and the runs of their writers: they stand in the keys of objects.
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
# Of snapshots, as the store makes them. No name that a caller gives looks like this: one would stand for the other.
ID = re.compile(r"[0-9a-f]{12}-[0-9a-f]{16}")
MAX_MANIFEST = 8 << 20
MAX_FACTS = 1 << 20
MAX_TEXT = 1024
MAX_LABELS = 64
MAX_PARENTS = 64
# Characters of what the claim asked for, whose environment has 256 KiB at most: JSON makes it longer.
MAX_CLAIM = 2 << 20
# Parts of the tables that a manifest names: more than 16 TiB of data.
MAX_PARTS = 8192
# Packs of one writer.
MAX_PACKS = 1 << 22

_CONTRACTS = tuple(contract.value for contract in Contract)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long automatic deletion leaves a snapshot alone; None: no limit.

    Attributes:
        count: of one session, this many of the newest are kept that were taken for the same reason.
        days: since it was taken.

    """

    count: int | None = None
    days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the control plane says of a snapshot. Nothing here comes from a sandbox.

    Attributes:
        received: the marks of what the session had received, as words of api.values.Mark.
        reason: manual, suspend, automatic, fork or import.
        claim: what the session's claim asked for (plan/snapshots/claims.py), or empty. It may have secrets: no export
            has it.

    """

    name: str = ""
    session: str = ""
    sandbox: str = ""
    template: str = ""
    contract: str = Contract.AUTONOMOUS.value
    received: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = "manual"
    keep: Retention = Retention()
    owner: str = ""
    claim: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a chunk is: `length` bytes at `offset` of a pack, that decode to `size` bytes. `source`: whose pack."""

    id: bytes
    source: int
    pack: int
    offset: int
    length: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Where the bytes of a snapshot are.

    Attributes:
        sources: the runs whose packs it needs; a Ref names one by its place here.
        packs: for each source, ranges of the packs that are needed: first and last.
        entries: parts of the table of the chunks of the entries.
        data: parts of the table of the chunks of the data.
        facts: the chunks of what the executor says.

    """

    sources: tuple[str, ...] = ()
    packs: tuple[tuple[tuple[int, int], ...], ...] = ()
    entries: tuple[Ref, ...] = ()
    data: tuple[Ref, ...] = ()
    facts: tuple[Ref, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One snapshot.

    Attributes:
        run: of the writer that made it.
        created_ms: milliseconds since the epoch, by the writer's clock.
        key: the name of the key that it was written with.
        totals: of its entries.
        new_bytes: data that no earlier snapshot had.
        stored_bytes: what was added to the store for it.
        digest: of the object as it is stored, in hexadecimal; empty before it is.

    """

    id: str
    run: str
    tenant: str
    created_ms: int
    key: str
    about: About
    totals: Totals
    new_bytes: int
    stored_bytes: int
    content: Content
    digest: str = ""


def checked_name(text: str, what: str) -> str:
    """Raises SnapshotError: it cannot stand in the key of an object."""
    if NAME.fullmatch(text) is None:
        raise hostile(f"{text[:70]!r} is no name of {what}: 1 to 63 of a-z, 0-9, '-' and '.'")
    return text


def encode(manifest: Manifest) -> bytes:
    """Raises SnapshotError: it is too large to be read again."""
    said = asdict(replace(manifest, content=Content())) | {"version": VERSION, "content": _content(manifest.content)}
    del said["digest"]
    text = json.dumps(said, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_MANIFEST:
        raise SnapshotError(Reason.TOO_LARGE, f"cannot save: a manifest has at most {MAX_MANIFEST} bytes")
    return text


def decode(text: bytes, *, tenant: str, snapshot_id: str) -> Manifest:
    """The manifest that was encoded; it has to name its tenant and itself. Raises SnapshotError."""
    try:
        said = json.loads(text)
        version, named = said["version"], (said["tenant"], said["id"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise corrupt("its manifest is none") from error
    if version != VERSION:
        raise corrupt(f"its manifest is of version {str(version)[:20]}, this program reads {VERSION}")
    if named != (tenant, snapshot_id):
        raise SnapshotError(Reason.FOREIGN, "cannot read the snapshot: its manifest is another tenant's or snapshot's")
    try:
        manifest = _manifest(said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise corrupt("its manifest lacks something") from error
    _check(manifest)
    return manifest


def _content(content: Content) -> dict[str, Any]:
    return {
        "sources": content.sources,
        "packs": content.packs,
        **{name: [_ref(ref) for ref in getattr(content, name)] for name in ("entries", "data", "facts")},
    }


def _ref(ref: Ref) -> list[Any]:
    return [ref.id.hex(), ref.source, ref.pack, ref.offset, ref.length, ref.size]


def _manifest(said: Mapping[str, Any]) -> Manifest:
    about, content = said["about"], said["content"]
    refs = {
        name: tuple(Ref(bytes.fromhex(digest), *place) for digest, *place in content[name])
        for name in ("entries", "data", "facts")
    }
    return Manifest(
        id=said["id"],
        run=said["run"],
        tenant=said["tenant"],
        created_ms=said["created_ms"],
        key=said["key"],
        about=About(**{**_tuples(about, "received", "parents"), "keep": Retention(**about["keep"])}),
        totals=Totals(**said["totals"]),
        new_bytes=said["new_bytes"],
        stored_bytes=said["stored_bytes"],
        content=Content(
            sources=tuple(content["sources"]),
            packs=tuple(tuple((first, last) for first, last in ranges) for ranges in content["packs"]),
            **refs,
        ),
    )


def _tuples(said: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**said, **{name: tuple(said[name]) for name in names}}


def _check(manifest: Manifest) -> None:
    """Later steps rely on it. The manifest is authentic: what it finds are mistakes, or another version."""
    content = manifest.content
    checked_name(manifest.run, "a run")
    for source in content.sources:
        checked_name(source, "a run")
    parts = (*content.entries, *content.data, *content.facts)
    totals = manifest.totals
    right = (
        len(content.sources) == len(content.packs)
        and len(parts) <= MAX_PARTS
        and all(0 <= first <= last <= MAX_PACKS for spans in content.packs for first, last in spans)
        and all(is_ref(ref, len(content.sources)) for ref in parts)
        and all(type(count) is int for count in (manifest.created_ms, totals.entries, totals.bytes, totals.size))
        and 0 <= totals.entries <= MAX_ENTRIES
        and 0 <= totals.bytes <= totals.size <= MAX_SIZE
    )
    if not right:
        raise corrupt("its manifest has impossible numbers")


# One chunk, before it is compressed; a compressed one may be a little larger.
MAX_CHUNK = 4 << 20
MAX_STORED = MAX_CHUNK + (64 << 10)
MAX_PACK = 64 << 20


def is_ref(ref: Ref, sources: int) -> bool:
    numbers = (ref.source, ref.pack, ref.offset, ref.length, ref.size)
    return (
        all(type(number) is int and number >= 0 for number in numbers)
        and len(ref.id) == 32
        and ref.source < sources
        and ref.offset <= MAX_PACK
        and 0 < ref.length <= MAX_STORED
        and 0 < ref.size <= MAX_CHUNK
    )


def ranges(packs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as ranges: first and last."""
    found: list[tuple[int, int]] = []
    for pack in sorted(packs):
        if found and found[-1][1] == pack - 1:
            found[-1] = (found[-1][0], pack)
        else:
            found.append((pack, pack))
    return tuple(found)


def check_about(about: About) -> None:
    """Raises SnapshotError: more, or longer, words than a manifest has."""
    words = [about.name, about.session, about.sandbox, about.template, about.owner, about.reason, *about.parents]
    words += [*about.labels, *about.labels.values()]
    if any(len(word) > MAX_TEXT for word in words) or len(about.labels) > MAX_LABELS:
        raise hostile(f"it has more than {MAX_LABELS} labels, or a word of more than {MAX_TEXT} characters")
    if len(about.claim) > MAX_CLAIM:
        raise hostile(f"what it says of its claim has over {MAX_CLAIM} characters")
    if len(about.parents) > MAX_PARENTS or about.contract not in _CONTRACTS:
        raise hostile(f"it has more than {MAX_PARENTS} parents, or an unknown contract")


def narrowed(about: About, contract: str, limits: Mapping[str, float]) -> None:
    """Whether a restore may have this contract and these limits: what the snapshot has, or less.

    Contracts narrow along api.kinds.template.Contract. A limit of 0 is none, of the snapshot as of the restore.

    Raises:
        SnapshotError: Widened, also of an imported snapshot in a reviewed sandbox.

    """
    why = ""
    if about.contract not in _CONTRACTS or contract not in _CONTRACTS:
        why = "one of the contracts is unknown"
    elif _CONTRACTS.index(contract) < _CONTRACTS.index(about.contract):
        why = f"its contract is {about.contract}, {contract} allows more"
    elif about.reason == "import" and contract == Contract.REVIEWED.value:
        # Variables are code when they are read, and services start by themselves.
        why = "it was imported, and what it has would run before a person has approved it"
    else:
        for name, kept in about.limits.items():
            asked = limits.get(name, 0)
            if kept and (not asked or asked > kept):
                why = f"its limit {name} is {kept:g}"
                break
    if why:
        raise SnapshotError(Reason.WIDENED, f"cannot restore the snapshot: {why}")
