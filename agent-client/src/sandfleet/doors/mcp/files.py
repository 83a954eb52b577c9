"""Tools for files of the sandbox."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from sandfleet.doors.mcp import answers
from sandfleet.doors.mcp.session import Call, seat_of

_MOST_LINES = 2_000
_MOST_ENTRIES = 1_000
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}

Path = Annotated[str, Field(description="relative to /workspace, or absolute")]


class Lines(BaseModel):
    """Lines of a file."""

    text: str
    lines: int = Field(description="of the whole file")
    next_line: int | None = Field(default=None, description="where the rest begins; none if this is the end")


class Entry(BaseModel):
    """One name in a folder."""

    path: str
    type: str
    size: int


class Listing(BaseModel):
    """What is in a folder."""

    entries: list[Entry]
    left_out: int = 0


async def read_file(
    path: Path,
    ctx: Call,
    line: Annotated[int, Field(ge=1, description="the first line")] = 1,
    lines: Annotated[int, Field(ge=1, le=_MOST_LINES)] = _MOST_LINES,
) -> CallToolResult:
    """Read a text file, a part at a time, or look at a picture (PNG, JPEG)."""
    sandbox = await seat_of(ctx).sandbox()
    mime = _PICTURES.get(path[path.rfind(".") :].lower()) if "." in path else None
    if mime:
        data = await sandbox.files.read(path, format="bytes", limit=answers.MOST_PICTURE)
        return CallToolResult(content=[answers.picture(data, mime)])
    every = (await sandbox.files.read(path, limit=answers.MOST_KEPT)).splitlines(keepends=True)
    shown, size = "", 0
    for each in every[line - 1 : line - 1 + lines]:
        if shown and len(shown) + len(each) > answers.MOST_CHARS:
            break
        shown, size = shown + each, size + 1
    end = line + size
    found = Lines(text=answers.clipped(shown), lines=len(every), next_line=end if end <= len(every) else None)
    rest = "" if found.next_line is None else f"\n[{len(every) - end + 1} more lines: read on from line {end}]"
    return answers.answer(found.text + rest, found)


async def write_file(path: Path, content: str, ctx: Call) -> str:
    """Write a whole file; folders above it are made, and a file of this name is replaced."""
    info = await (await seat_of(ctx).sandbox()).files.write(path, content)
    return f"wrote {info.size} bytes to {info.path}"


async def edit_file(
    path: Path,
    old: Annotated[str, Field(min_length=1, description="the exact text, which stands there once")],
    new: str,
    ctx: Call,
    every: Annotated[bool, Field(description="replace all places where it stands")] = False,
) -> str:
    """Replace an exact text in a file. Refused, with the reason, where it is not there or stands in several places."""
    files = (await seat_of(ctx).sandbox()).files
    text = await files.read(path, limit=answers.MOST_KEPT)
    count = text.count(old)
    if count == 0:
        raise ToolError(f"cannot edit {path}: the text to replace is not in it; read the file, and copy it exactly")
    if count > 1 and not every:
        raise ToolError(
            f"cannot edit {path}: the text to replace stands in it {count} times; give more lines around it"
        )
    await files.write(path, text.replace(old, new))
    return f"replaced {count} place{'s' if count > 1 else ''} in {path}"


async def list_files(
    ctx: Call, path: Path = ".", depth: Annotated[int, Field(ge=1, le=10, description="levels of folders")] = 1
) -> Annotated[CallToolResult, Listing]:
    """List a folder."""
    found = await (await seat_of(ctx).sandbox()).files.list(path, depth=depth)
    entries = [Entry(path=one.path, type=one.type.value, size=one.size) for one in found[:_MOST_ENTRIES]]
    text = "\n".join(f"{one.path}{'/' if one.type == 'directory' else f'  {one.size}'}" for one in entries)
    left_out = len(found) - len(entries)
    rest = f"\n[{left_out} more]" if left_out else ""
    return answers.answer((text or "empty") + rest, Listing(entries=entries, left_out=left_out))
