"""`sandfleet skills ls|show|check|approve|reject`: the library of skills in a folder."""

from __future__ import annotations

import argparse
import asyncio
import base64
import getpass
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet.cli import FAILED, OK, sentence, table
from sandfleet.skills.library import SkillLibrary
from sandfleet.skills.skill import SkillState

if TYPE_CHECKING:
    from sandfleet.skills.skill import Skill

_COLUMNS = ("SKILL", "VERSION", "STATE", "MARKS", "SESSION", "SUMMARY")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    said = {
        "ls": "list the newest version of each skill",
        "show": "show a skill with its code and tests",
        "check": "run the tests of a skill again, in a fresh sandbox",
        "approve": "offer a skill that waits for a person",
        "reject": "offer a skill no more",
    }
    for name, summary in said.items():
        action = actions.add_parser(name, help=summary, description=sentence(summary))
        if name != "ls":
            action.add_argument("skill", metavar="SKILL", help="its name, or NAME@VERSION")
        if name == "approve":
            action.add_argument("--as", dest="person", default=getpass.getuser(), metavar="PERSON", help="who approves")
        if name == "reject":
            action.add_argument("--reason", default="a person has rejected it", metavar="TEXT", help="why")
        action.add_argument(
            "--library", type=Path, default=Path("skills.library"), metavar="DIR", help="its folder (skills.library)"
        )
        action.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the action says. Raises SandfleetError."""
    library = SkillLibrary(options.library)
    if options.action == "ls":
        return _list(library, as_json=options.json)
    name, at, version = options.skill.partition("@")
    skill = library.get(name, int(version) if at and version.isdecimal() else None)
    if options.action == "approve":
        skill = library.approve(skill, options.person)
    elif options.action == "reject":
        skill = library.reject(skill, options.reason)
    elif options.action == "check":
        skill = asyncio.run(_checked(library, skill))
    return _show(skill, as_json=options.json, in_full=options.action == "show")


def _list(library: SkillLibrary, *, as_json: bool) -> int:
    skills = library.newest()
    if as_json:
        print(json.dumps([asdict(skill) for skill in skills], indent=2, default=_text))
    elif not skills:
        print(f"There are no skills in {library.folder}.")
    else:
        table.show(_COLUMNS, [tuple(map(table.plain, _row(skill))) for skill in skills])
    return OK


def _row(skill: Skill) -> tuple[str, ...]:
    state, marks = skill.state.value.replace("_", " "), ",".join(skill.marks) or "-"
    return skill.name, str(skill.version), state, marks, skill.sandbox_id or "-", skill.summary or "-"


async def _checked(library: SkillLibrary, skill: Skill) -> Skill:
    from sandfleet import AsyncSandbox
    from sandfleet.resources.skills import failed_tests

    async with AsyncSandbox.create(egress="none") as sandbox:
        return library.checked(skill, await failed_tests(skill, sandbox))


def _show(skill: Skill, *, as_json: bool, in_full: bool) -> int:
    if as_json:
        print(json.dumps(asdict(skill), indent=2, default=_text))
    else:
        why = f": {skill.why}" if skill.why else ""
        print(table.plain(f"{skill.name}@{skill.version} is {skill.state.value.replace('_', ' ')}{why}"))
        if in_full:
            granted = [("manifest", json.dumps(json.loads(skill.wasm.manifest), indent=2))] if skill.wasm else []
            for title, text in (*granted, ("code", skill.code), ("tests", skill.tests)):
                print(f"\n--- {title}")
                print("\n".join(map(table.plain, text.splitlines())))
    return FAILED if skill.state is SkillState.FAILED else OK


def _text(module: bytes) -> str:
    return base64.b64encode(module).decode()
