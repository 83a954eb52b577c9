"""The tools that a client serves to the code in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet._arguments import checked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from sandfleet._wire.link import Link
    from sandfleet.tools.server import AsyncToolServer
    from sandfleet.values.tools import AnyTool, ToolPolicy


class ServesTools:
    """The part of a sandbox whose code calls functions of this process."""

    _link: Link
    _tool_servers: list[AsyncToolServer]

    async def _stop_tools(self) -> None:
        for server in self._tool_servers:
            await server.close()
        self._tool_servers.clear()

    @checked
    async def serve_tools(
        self,
        tools: Sequence[AnyTool],
        *,
        policy: ToolPolicy | None = None,
        on_ask: ToolPolicy | None = None,
        calls_file: str | PathLike[str] | None = None,
    ) -> AsyncToolServer:
        """Let the code in a brokered sandbox call functions of this process, until `close` or the end of this object.

        tools   annotated functions, asynchronous or not, what `sandfleet.tool` makes of them, tools of smolagents, and
                MCP servers, as `sandfleet.mcp_server` names them: they run until the end of serving. Code calls them as
                `tools.NAME(...)`, `await tools.NAME.aio(...)` and, in a shell, `tool NAME --argument value`.
        policy  decides about each call; None allows all. `sandfleet.tools.policies` has ready-made ones.
        on_ask  decides, as a person says, about calls for which the policy says `Decision(allowed=False, ask=True)`;
                the deadline of the code that calls counts meanwhile. A plain function runs in a thread, and may ask
                a person by `input`. What it or the policy raises is logged, and the call is refused. Without it they
                wait as reviews of the session for the fleet's reviewers, and for `on_review` of `create`: that time
                counts against no deadline.
        calls_file
                keeps what this process knows of the calls of this sandbox in a file, which is made where it is missing.
                A process that opens it after this one was killed answers from it what has run, and goes on with limits
                and budgets; what may have run ends as ToolUnavailable. Results stand in it in plain text, until they
                have arrived. One process has it open at a time.

        The tools take the place of those that this or another client served before; the end of that client loses no
        call. Raises PreconditionFailed (ContractNotBrokered, CallsFileInUse), InvalidArgument for a function that
        cannot be a tool and for a file that has no calls of this sandbox, SandboxEnded, UnavailableError (an MCP
        server, too).
        """
        from sandfleet.tools.calls_file import keeping_calls
        from sandfleet.tools.server import AsyncToolServer
        from sandfleet.tools.sources import opened

        keeping = await keeping_calls(calls_file, self._link.sandbox_id)
        try:
            offered = await opened(tools)
        except BaseException:  # A cancellation too: the next attempt needs the file.
            await keeping[0].close()
            raise
        server = AsyncToolServer(self._link, offered, policy, on_ask, keeping)
        await server.begin()
        self._tool_servers.append(server)
        return server
