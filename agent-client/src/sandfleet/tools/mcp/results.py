"""What an MCP server answers as values, and as reasons why there is none."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandfleet.errors import UnavailableError
from sandfleet.tools.ledger import Failure, Kind
from sandfleet.tools.sources import CallFailed

if TYPE_CHECKING:
    from mcp import MCPError
    from mcp.types import CallToolResult


def value_of(tool: str, result: CallToolResult, *, wrapped: bool) -> Any:
    """The result as code gets it; the structured content where there is some. Raises CallFailed.

    wrapped  the server puts a value that is no object into one, with the name `result`.
    """
    if result.is_error:
        said = "\n".join(block.text for block in result.content if block.type == "text")
        raise CallFailed(Failure(Kind.ERROR, "McpToolError", f"{tool} has failed: {said or 'it does not say why'}"))
    structured = result.structured_content
    if structured is not None:
        return structured["result"] if wrapped and isinstance(structured, Mapping) else structured
    blocks = [_block(each) for each in result.content]
    if not blocks:
        return None
    return blocks[0] if len(blocks) == 1 else blocks


def is_wrapped(schema: Mapping[str, Any] | None) -> bool:
    """Whether the server puts values of this schema into an object, as MCP's own server for Python does."""
    if not schema or set(schema.get("properties", ())) != {"result"}:
        return False
    return bool(schema.get("x-fastmcp-wrap-result")) or str(schema.get("title", "")).endswith("Output")


def failure_of(tool: str, error: MCPError) -> CallFailed:
    """What the code is told of an error of the protocol."""
    from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS

    if error.code == INVALID_PARAMS:
        return CallFailed(Failure(Kind.DENIED, "InvalidArguments", f"cannot call {tool}: {error.message}"))
    if error.code == CONNECTION_CLOSED:
        why = "the MCP server has gone, and nothing says whether it ran"
        return CallFailed(Failure(Kind.UNAVAILABLE, "ServerLost", f"cannot call {tool}: {why}", may_have_run=True))
    return CallFailed(Failure(Kind.ERROR, "McpError", f"{tool} has failed: {error.message}"))


def not_started(tool: str, error: UnavailableError) -> CallFailed:
    """What the code is told where the server could not be reached at all."""
    return CallFailed(Failure(Kind.UNAVAILABLE, "ServerLost", f"cannot call {tool}: {error}"))


def _block(block: Any) -> Any:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _bytes(block.data)
        case "resource":
            blob = getattr(block.resource, "blob", None)
            return block.resource.text if blob is None else _bytes(blob)
        case _:
            return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the MCP server sent bytes that are no base64: {error}") from None
