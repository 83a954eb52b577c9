"""Skills of one sandbox: those that were loaded into it, and those that it saves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sandfleet._arguments import checked
from sandfleet.errors import InvalidArgument, SandfleetError
from sandfleet.resources.scripts import Place, failed_script
from sandfleet.skills import wasm
from sandfleet.skills.skill import Skill, SkillState

if TYPE_CHECKING:
    from os import PathLike

    from sandfleet._wire.link import Link
    from sandfleet.resources.files.files import AsyncFiles
    from sandfleet.skills.library import SkillLibrary

_PACKAGE = "skills"
_TEST = ".sandfleet_skill_test.py"
_TEST_TIMEOUT = 60.0
_UNKNOWN_MARKS = ("untrusted",)


# Makes a sandbox of the same template that reaches nothing, for the body.
MakeFresh = Callable[[], AbstractAsyncContextManager[Place]]


class AsyncSkills:
    """Skills of one sandbox. Its code imports them as `skills.NAME`."""

    def __init__(self, link: Link, files: AsyncFiles, library: SkillLibrary | None, fresh: MakeFresh) -> None:
        """Use `sandbox.skills`."""
        self._link = link
        self._files = files
        self._library = library
        self._fresh = fresh
        self._loaded: tuple[Skill, ...] = ()

    @property
    def loaded(self) -> tuple[Skill, ...]:
        """The skills that were loaded into this sandbox."""
        return self._loaded

    @checked
    async def save(
        self,
        name: str,
        code: str | bytes = "",
        *,
        tests: str,
        path: str = "",
        manifest: Mapping[str, Any] | None = None,
    ) -> Skill:
        """Save a skill, and run its tests in a fresh sandbox. The returned skill's `state` says whether it is offered.

        code      the module's source; or `path` names its file in this sandbox.
        tests     Python that a fresh interpreter runs, which can import `skills.NAME`; exit code 0 passes.
        manifest  of a skill that is WebAssembly: its functions, and all that it may use. `code` or `path` is then the
                  module.

        A skill of a session that has received untrusted or secret content waits for a person:
        `sandfleet skills approve`. Raises InvalidArgument, SkillError, FileNotFound, ClaimError.
        """
        if bool(code) == bool(path):
            raise InvalidArgument("cannot save a skill: give either its code or the path of its file")
        if not path and isinstance(code, bytes) is (manifest is None):
            raise InvalidArgument("cannot save a skill: a module of WebAssembly is bytes and has a manifest")
        text, module = "", None
        if manifest is None:
            text = str(code) or await self._files.read(path)
        else:
            given = code if isinstance(code, bytes) and code else await self._files.read(path, format="bytes")
            module = wasm.checked(name, given, manifest)
        library = self._open()
        marks, origin = await self._marks(), self._link.sandbox_id
        skill = await asyncio.to_thread(library.add, name, text, tests, sandbox_id=origin, marks=marks, module=module)
        return skill if skill.state is not SkillState.UNCHECKED else await self._check(library, skill)

    @checked
    async def load(self, *names: str) -> tuple[Skill, ...]:
        """Copy skills into this sandbox, all that are offered by default, in the place of those loaded before.

        A session that loads a skill has received what the skill's own session had received. In a reviewed sandbox each
        file waits for approval. Raises NotFoundError, InvalidArgument (a skill is not offered), SkillError.
        """
        library = self._open()
        offered = {skill.name: skill for skill in await asyncio.to_thread(library.offered)}
        for name in names:
            if name not in offered:
                known = await asyncio.to_thread(library.get, name)
                why = known.why or known.state.value.replace("_", " ")
                raise InvalidArgument(f"cannot load the skill {name}: {why}", reason="SkillNotOffered", subject=name)
        chosen = tuple(offered[name] for name in (names or sorted(offered)))
        # The mark first: code may run the moment its file is there.
        if marks := sorted({mark for skill in chosen for mark in skill.marks}):
            await self._link.fleet.note_received(self._link.sandbox_id, marks)
        await _written(self._files, chosen)
        self._loaded = chosen
        return chosen

    @checked
    async def list(self) -> tuple[Skill, ...]:
        """List the newest version of each skill of the library. Raises SkillError."""
        return await asyncio.to_thread(self._open().newest)

    @checked
    async def check(self, name: str) -> Skill:
        """Run the tests of the newest version again, in a fresh sandbox.

        Raises NotFoundError, SkillError, ClaimError.
        """
        library = self._open()
        return await self._check(library, await asyncio.to_thread(library.get, name))

    async def _check(self, library: SkillLibrary, skill: Skill) -> Skill:
        async with self._fresh() as sandbox:
            failure = await failed_tests(skill, sandbox)
        return await asyncio.to_thread(library.checked, skill, failure)

    async def _marks(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(await self._link.fleet.note_received(self._link.sandbox_id, ())))
        except SandfleetError:
            # What cannot be read counts as untrusted.
            return _UNKNOWN_MARKS

    def _open(self) -> SkillLibrary:
        if self._library is None:
            why = "the sandbox was created or connected to without skills="
            raise InvalidArgument(f"cannot use skills: {why}", reason="NoSkillLibrary")
        return self._library


class HasSkills:
    """The part of a sandbox that has skills."""

    _link: Link
    _library: SkillLibrary | None = None

    @cached_property
    def skills(self) -> AsyncSkills:
        """Skills that were loaded into the sandbox, and those that it saves; they need `create(skills=…)`."""
        from sandfleet.resources.files.files import AsyncFiles

        return AsyncSkills(self._link, AsyncFiles(self._link), self._library, self._fresh)

    @checked
    async def load_skills(self, library: str | PathLike[str]) -> tuple[Skill, ...]:
        """Use the library in this folder, and load all skills that it offers; as `skills.load` does."""
        from sandfleet.skills.library import SkillLibrary

        self._library = SkillLibrary(library)
        self.__dict__.pop("skills", None)
        return await self.skills.load()

    @asynccontextmanager
    async def _fresh(self) -> AsyncIterator[Place]:
        info = await self._link.info()
        # The sandbox's class is above this one.
        create: Any = getattr(self, "create")  # noqa: B009
        async with create(info.template, fleet=self._link.fleet, egress="none") as sandbox:
            yield sandbox


async def failed_tests(skill: Skill, sandbox: Place) -> str:
    """Run a skill's tests in a sandbox that was made for them; say how they failed, "" when they pass."""
    await _written(sandbox.files, (skill,))
    trouble = await failed_script(sandbox, _TEST, skill.tests, timeout=_TEST_TIMEOUT)
    return f"its tests fail: {trouble}" if trouble else ""


async def _written(files: AsyncFiles, skills: tuple[Skill, ...]) -> None:
    names = "".join(f"from skills import {skill.name} as {skill.name}\n" for skill in skills)
    await files.write(f"{_PACKAGE}/__init__.py", f'"""Skills of earlier sessions."""\n\n{names}')
    for skill in skills:
        if skill.wasm:
            # Before the code that reads them at its first call.
            await files.write(f"{_PACKAGE}/{skill.name}.json", skill.wasm.manifest)
            await files.write(f"{_PACKAGE}/{skill.name}.wasm", skill.wasm.module)
        await files.write(f"{_PACKAGE}/{skill.name}.py", skill.code)
