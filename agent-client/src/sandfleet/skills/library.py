"""The folder of skills. Only the host writes it; sandboxes get copies.

    objects/SHA256.json   what was saved: name, code or module, tests, where it came from; never changed
    names/NAME.json       the versions of a skill: their digests, states and approvals

Each file is written beside its place and moved there, so a process that is killed leaves the old one or the new one.
Several processes may share a folder: a lock file orders their changes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandfleet.errors import InvalidArgument, NotFoundError, SandfleetError
from sandfleet.skills import source, wasm
from sandfleet.skills.skill import Skill, SkillState, WasmModule

# Skills in a library, and versions of a skill.
MOST_SKILLS, MOST_VERSIONS = 10_000, 1000
_UNREADABLE = "untrusted"


class SkillError(SandfleetError):
    """The library cannot be read or written, or its content is not what its digest says."""


class SkillLibrary:
    """The skills of a folder, which is made at the first save."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()

    def __repr__(self) -> str:
        return f"SkillLibrary({str(self.folder)!r})"

    def __fspath__(self) -> str:
        return str(self.folder)

    def newest(self) -> tuple[Skill, ...]:
        """Return the newest version of each skill, by name. Raises SkillError."""
        return tuple(self.get(path.stem) for path in sorted(self._names()))

    def offered(self) -> tuple[Skill, ...]:
        """Return the newest version of each skill that sessions are offered, by name. Raises SkillError."""
        found = []
        for path in sorted(self._names()):
            index = self._index(path.stem)
            # Only the version that is wanted is read: claims wait for this.
            numbers = [n for n, one in enumerate(index, start=1) if one["state"] == SkillState.OFFERED]
            found += [self._skill(path.stem, number, index[number - 1]) for number in numbers[-1:]]
        return tuple(found)

    def get(self, name: str, version: int | None = None) -> Skill:
        """Return a version of a skill, the newest by default. Raises NotFoundError, SkillError."""
        index = self._index(name)
        number = len(index) if version is None else version
        if not 0 < number <= len(index):
            what = f"{name} has no version {version}" if index else f"{name} is not there"
            raise NotFoundError(f"cannot find the skill: {what}", reason="SkillNotFound", subject=name)
        return self._skill(name, number, index[number - 1])

    def versions(self, name: str) -> tuple[Skill, ...]:
        """Return all versions of a skill, the oldest first; none if there is no such skill. Raises SkillError."""
        return tuple(self._skill(name, number, one) for number, one in enumerate(self._index(name), start=1))

    def add(
        self,
        name: str,
        code: str,
        tests: str,
        *,
        sandbox_id: str = "",
        marks: tuple[str, ...] = (),
        module: WasmModule | None = None,
    ) -> Skill:
        """Save a version of a skill. What is there already as the newest version is not saved again.

        module  of a skill that is WebAssembly, which has no code of its own.

        Raises InvalidArgument, SkillError.
        """
        source.check_name(name)
        code = wasm.source(name, module) if module else code
        source.check_size(name, code, tests)
        source.described(name, code)
        said: dict[str, Any] = {
            "name": name,
            "code": code,
            "tests": tests,
            "sandbox_id": sandbox_id,
            "marks": sorted(marks),
        }
        said |= {"wasm": wasm.kept(module)} if module else {}
        body = json.dumps(said, sort_keys=True).encode()
        digest = source.hashed(body)
        with self._changing(name) as versions:
            if not versions or versions[-1]["digest"] != digest:
                if len(versions) >= MOST_VERSIONS:
                    why = f"it has {MOST_VERSIONS} versions"
                    raise InvalidArgument(f"cannot save the skill {name}: {why}", reason="TooManyVersions")
                self._write(self.folder / "objects" / f"{digest}.json", body)
                versions.append({"digest": digest, "state": SkillState.UNCHECKED.value})
            # Another process may save the next one as soon as the lock is free.
            number = len(versions)
        return self.get(name, number)

    def checked(self, skill: Skill, failure: str) -> Skill:
        """Note how the tests of a version have ended; `failure` is "" when they passed.

        What a person has decided stays: a rejected version is not offered again, and an approved one waits for no
        second approval. Raises SkillError.
        """
        with self._changing(skill.name) as versions:
            entry = self._entry(versions, skill)
            if entry["state"] != SkillState.REJECTED:
                waits = skill.marks and not entry.get("approved_by")
                passed = SkillState.AWAITING_REVIEW if waits else SkillState.OFFERED
                entry.update(state=(SkillState.FAILED if failure else passed).value, why=failure[:2000])
        return self.get(skill.name, skill.version)

    def approve(self, skill: Skill, person: str) -> Skill:
        """Offer a version that awaits review. Its marks stay: a session that loads it has received what they say.

        Raises InvalidArgument (it is in another state, or is no person's), SkillError.
        """
        if not person:
            raise InvalidArgument("cannot approve a skill: say who approves it", reason="ApproverMissing")
        if skill.state is not SkillState.AWAITING_REVIEW:
            why = f"version {skill.version} is {skill.state.value.replace('_', ' ')}"
            raise InvalidArgument(f"cannot approve the skill {skill.name}: {why}", reason="NotAwaitingReview")
        return self._set(skill, SkillState.OFFERED, "", approved_by=person)

    def reject(self, skill: Skill, why: str) -> Skill:
        """Offer a version no more. Raises SkillError."""
        return self._set(skill, SkillState.REJECTED, why)

    def _set(self, skill: Skill, state: SkillState, why: str, **more: str) -> Skill:
        with self._changing(skill.name) as versions:
            self._entry(versions, skill).update(state=state.value, why=why, **more)
        return self.get(skill.name, skill.version)

    def _entry(self, versions: list[dict[str, Any]], skill: Skill) -> dict[str, Any]:
        entry = versions[skill.version - 1] if skill.version <= len(versions) else {}
        if entry.get("digest") != skill.digest:
            raise SkillError(f"cannot change the skill {skill.name}: version {skill.version} is another one now")
        return entry

    def _names(self) -> list[Path]:
        names = self.folder / "names"
        found = [path for path in names.iterdir() if path.suffix == ".json"] if names.is_dir() else []
        if len(found) > MOST_SKILLS:
            raise SkillError(f"cannot read {self.folder}: it has more than {MOST_SKILLS} skills")
        return found

    def _index(self, name: str) -> list[dict[str, Any]]:
        source.check_name(name)
        path = self.folder / "names" / f"{name}.json"
        try:
            said = json.loads(path.read_bytes())
            return [{**one, "digest": one["digest"], "state": SkillState(one["state"])} for one in said["versions"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SkillError(f"cannot read {path}: {error}", reason="SkillUnreadable", subject=name) from error

    def _skill(self, name: str, number: int, entry: dict[str, Any]) -> Skill:
        try:
            said = self._object(name, str(entry["digest"]))
            summary, stub = source.described(name, said["code"])
            return Skill(
                name,
                number,
                summary,
                said["code"],
                said["tests"],
                entry["digest"],
                sandbox_id=said["sandbox_id"],
                # A mark that cannot be read counts as untrusted.
                marks=tuple(said["marks"]) if isinstance(said.get("marks"), list) else (_UNREADABLE,),
                stub=stub,
                state=SkillState(entry["state"]),
                why=entry.get("why", ""),
                approved_by=entry.get("approved_by", ""),
                wasm=wasm.read(said["wasm"]) if "wasm" in said else None,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"cannot read version {number} of the skill {name}: {error}"
            raise SkillError(message, reason="SkillUnreadable", subject=name) from error

    def _object(self, name: str, digest: str) -> dict[str, Any]:
        """Read what was saved. Raises OSError, ValueError."""
        body = (self.folder / "objects" / f"{digest}.json").read_bytes()
        if source.hashed(body) != digest:
            raise ValueError("its content is not what its digest says")
        said: dict[str, Any] = json.loads(body)
        if said["name"] != name:
            raise ValueError(f"it is the skill {said['name']!r}")
        return said

    @contextmanager
    def _changing(self, name: str) -> Iterator[list[dict[str, Any]]]:
        """Hold the lock, and write the versions that the body has changed."""
        try:
            for folder in ("objects", "names"):
                (self.folder / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self.folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                versions = self._index(name)
                if not versions and len(self._names()) >= MOST_SKILLS:
                    raise InvalidArgument(f"cannot save the skill {name}: the library has {MOST_SKILLS} skills")
                yield versions
                self._write(self.folder / "names" / f"{name}.json", json.dumps({"versions": versions}).encode())
        except OSError as error:
            raise SkillError(f"cannot write {self.folder}: {error}", reason="SkillUnwritable") from error

    def _write(self, path: Path, body: bytes) -> None:
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
