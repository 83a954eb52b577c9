"""What tools answer: bounded texts, pictures, and the same as data."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.types import CallToolResult, ContentBlock, ImageContent, TextContent
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from sandfleet.resources.commands import AsyncCommandHandle
    from sandfleet.values.execution import CommandResult, Execution, Result

# Characters of one text that an answer has at most: models read all of it.
MOST_CHARS = 20_000
# Characters of a file or of a command in the background that are kept or read at a time.
MOST_KEPT = 1 << 22
# Of the pictures of one answer: their number, and the bytes of each.
MOST_PICTURES, MOST_PICTURE = 8, 2 << 20
_PICTURES = ("image/png", "image/jpeg")


class Ran(BaseModel):
    """How code or a command ended."""

    outcome: str = Field(description="ok, error, timeout, memory, killed, interrupted, denied, lost; or running")
    text: str | None = Field(default=None, description="the value of the last expression")
    stdout: str = ""
    stderr: str = ""
    error: str = Field(default="", description="the exception, with its traceback")
    message: str = Field(default="", description="why it ended so, in a sentence")
    exit_code: int = 0
    lost: list[str] = Field(default=[], description="what earlier cells left and is lost")
    changed_files: list[str] = []
    execution_id: str = Field(default="", description="for read_output and kill_command")
    cut: bool = Field(default=False, description="whether a text lacks its middle; read_output has all of it")


class Page(BaseModel):
    """A part of a text."""

    text: str
    next_offset: int | None = Field(default=None, description="where the rest begins; none if this is the end")
    running: bool = False


@dataclass(slots=True)
class Background:
    """A command that runs on, and what it has written so far."""

    handle: AsyncCommandHandle
    reading: asyncio.Task[None]
    text: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)


def clipped(text: str, most: int = MOST_CHARS) -> str:
    r"""Return the text, without its middle where it is too long.

    >>> clipped("0123456789" * 3, 20)
    '0123456789\n[… 10 characters …]\n0123456789'
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"


def page(text: str, offset: int, *, running: bool = False) -> Page:
    """Return the part of a text that begins at an offset."""
    part = text[offset : offset + MOST_CHARS]
    end = offset + len(part)
    return Page(text=part, next_offset=end if end < len(text) or running else None, running=running)


def of_execution(execution: Execution) -> CallToolResult:
    """Show a cell as a notebook does: output, values and pictures."""
    ran = Ran(text=clipped(execution.text) if execution.text else None, **_common(execution))
    ran.error = clipped(str(execution.error)) if execution.error else ""
    ran.cut = ran.cut or len(execution.text or "") > MOST_CHARS
    pictures = [found for result in execution.results for found in _pictures(result)][:MOST_PICTURES]
    return answer(str(execution), ran, pictures)


def of_command(result: CommandResult) -> CallToolResult:
    """Show a command as a terminal does."""
    return answer(str(result), Ran(exit_code=result.exit_code, **_common(result)))


def answer(text: str, said: BaseModel, pictures: list[ImageContent] | None = None) -> CallToolResult:
    """Make the answer of a tool: a text for models, pictures, and data for programs."""
    content: list[ContentBlock] = [TextContent(type="text", text=clipped(text)), *(pictures or [])]
    return CallToolResult(content=content, structured_content=said.model_dump(mode="json"))


def picture(data: bytes, mime: str) -> ImageContent:
    """Make a picture of its bytes."""
    return ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=mime)


def _common(ended: Execution | CommandResult) -> dict[str, Any]:
    stdout, stderr = (ended.logs.stdout, ended.logs.stderr) if hasattr(ended, "logs") else (ended.stdout, ended.stderr)
    files = ended.files
    return {
        "outcome": ended.outcome.value,
        "stdout": clipped(stdout),
        "stderr": clipped(stderr),
        "message": ended.message,
        "lost": list(ended.lost),
        "changed_files": [*files.created, *files.modified][:100],
        "execution_id": ended.execution_id,
        "cut": max(len(stdout), len(stderr)) > MOST_CHARS,
    }


def _pictures(result: Result) -> list[ImageContent]:
    parts = [(mime, result.png if mime == "image/png" else result.jpeg) for mime in _PICTURES]
    return [picture(data, mime) for mime, data in parts if data and len(data) <= MOST_PICTURE][:1]
