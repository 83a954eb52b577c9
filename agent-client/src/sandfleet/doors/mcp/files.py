"""Tools for files of the sandbox."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from sandfleet.doors.mcp import answers
from sandfleet.doors.mcp.session import Call, seat_of

_MOST_LINES = 2_000
_MOST_ENTRIES = 1_000
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}

Path = Annotated[str, Field(description="relative to /workspace, or absolute")]


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
    offset: Annotated[int, Field(ge=1, description="the first line")] = 1,
    limit: Annotated[int, Field(ge=1, le=_MOST_LINES, description="lines")] = _MOST_LINES,
) -> CallToolResult:
    """Read a text file, a part at a time, or look at a picture (PNG, JPEG)."""
    mime = _PICTURES.get(path[path.rfind(".") :].lower()) if "." in path else None
    if mime is None:
        text = await _prepared(ctx, "read", path=path, offset=offset, limit=limit)
        return CallToolResult(content=[TextContent(type="text", text=text)])
    sandbox = await seat_of(ctx).sandbox()
    data = await sandbox.files.read(path, format="bytes", limit=answers.MOST_PICTURE)
    return CallToolResult(content=[answers.picture(data, mime)])


async def write_file(path: Path, content: str, ctx: Call) -> str:
    """Write a whole file; folders above it are made, and a file of this name is replaced."""
    return await _prepared(ctx, "write", path=path, text=content)


async def edit_file(
    path: Path,
    old: Annotated[str, Field(description="the exact text, which stands there once")],
    new: str,
    ctx: Call,
    replace_all: Annotated[bool, Field(description="replace all places where it stands")] = False,
) -> str:
    """Replace an exact text in a file. Refused, with the reason, where it is not there or stands in several places."""
    return await _prepared(ctx, "edit", path=path, old=old, new=new, replace_all=replace_all)


async def glob(pattern: Annotated[str, Field(description="as in **/*.py")], ctx: Call, path: Path = ".") -> str:
    """Find files by their names."""
    return await _prepared(ctx, "glob", pattern=pattern, path=path)


async def grep(
    pattern: Annotated[str, Field(description="a regular expression")],
    ctx: Call,
    path: Path = ".",
    include: Annotated[str, Field(description="only files whose names match this, as in **/*.py")] = "**",
) -> str:
    """Find lines of text files that match a regular expression."""
    return await _prepared(ctx, "grep", pattern=pattern, path=path, include=include)


async def _prepared(ctx: Call, name: str, **arguments: Any) -> str:
    """Call a tool of the toolkit. Raises ToolError with what the model can mend."""
    said = await (await seat_of(ctx).kit())[name](**arguments)
    if said.is_error:
        raise ToolError(said)
    return str(said)


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
