"""The part of AsyncSandbox that runs code in contexts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet.interpreter import Interpreter
    from sandfleet.rollback import OnFailure
    from sandfleet.state_values import Autosave
    from sandfleet.values import Context, Execution, OnResult, OnText


class AsyncCode:
    """Cells, and the contexts that they run in."""

    _interpreter: Interpreter

    async def run_code(
        self,
        code: str,
        *,
        language: str | None = None,
        context: str | Context | None = None,
        timeout: float | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        envs: Mapping[str, str] | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
        on_failure: str | OnFailure = "keep",
    ) -> Execution:
        """Run one cell and answer with its outcome, whatever the code does.

        language      of the context made at first use when no `context` is named: "python" (None) or "bash".
        context       where to run it: variables last in it from one execution to the next. None means the default one.
        timeout       deadline in seconds from the start of the run; None means the sandbox's default.
        on_stdout, on_stderr, on_result  called with each piece as it comes (awaited where they return an awaitable).
        output_limit  bytes of each stream that are kept (head and tail); None means the sandbox's default.
        on_failure    what becomes of the variables when the code raises: "keep", or "rollback": they are as before the cell.
                      A cell that is killed, or that ends its interpreter, is rolled back in any case: `Execution.rollback` says.
        execution_id  of 1 to 64 of [A-Za-z0-9._-], unique in the sandbox; None makes one up. The same call with the id of an
                      execution that was begun before gives that one's result and runs nothing.

        Raises only what happened before the execution was accepted: SandboxEnded, UnavailableError, NotFoundError (no such
        context), AlreadyExistsError (the id ran before, as something else), InvalidArgument, LimitReached. After that a failure
        of the platform is the outcome `lost`. Cancelling interrupts the code.
        """
        from sandfleet.interpreter import Cell, Listeners
        from sandfleet.rollback import OnFailure

        cell = Cell(
            code,
            language=language,
            context=context,
            timeout=timeout,
            envs=dict(envs or {}),
            output_limit=output_limit,
            execution_id=execution_id or os.urandom(16).hex(),
            on_failure=OnFailure(on_failure),
        )
        return await self._interpreter.run(cell, Listeners(on_stdout, on_stderr, on_result))

    async def attach(
        self,
        execution_id: str,
        *,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
    ) -> Execution:
        """Follow a cell that was begun before, here or by another process, from its start to its end; answers as `run_code`.

        It may run or have ended, also under an earlier executor; others may follow it as well. Cancelling leaves it running.

        Raises NotFoundError: no cell of that id was begun, or what it showed was forgotten. SandboxEnded, UnavailableError.
        """
        from sandfleet.interpreter import Listeners

        return await self._interpreter.attach(execution_id, Listeners(on_stdout, on_stderr, on_result))

    async def create_context(
        self,
        context_id: str | None = None,
        *,
        language: str = "python",
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        autosave: bool | Autosave | None = None,
    ) -> Context:
        """Start an interpreter of its own; `cwd` is relative to /workspace, `autosave` None means as the sandbox's.

        Raises AlreadyExistsError, InvalidArgument (unknown language, malformed id), LimitReached.
        """
        return await self._interpreter.create(context_id, language=language, cwd=cwd, envs=envs, autosave=autosave)

    async def fork_context(
        self, context: str | Context = "default", count: int = 1, *, context_ids: Sequence[str] | None = None
    ) -> tuple[Context, ...]:
        """Copy a context `count` times, with all its variables, imports and its working directory, in milliseconds.

        The copies share memory until they write to it. Each draws its own random numbers (`random` and NumPy's global ones are
        seeded from its id; generators that code has made go on the same in each). Waits for a running cell to end; all copies
        are made, or none. `context_ids` gives them names; None makes names up.

        Raises PreconditionFailed (reason ThreadsRunning: other threads than the main one cannot be copied), NotFoundError,
        AlreadyExistsError, InvalidArgument, LimitReached.
        """
        return await self._interpreter.fork(context, count, context_ids)

    async def list_contexts(self) -> tuple[Context, ...]:
        """List the contexts."""
        return await self._interpreter.contexts()

    async def restart_context(self, context: str | Context = "default") -> Context:
        """End the interpreter of a context and start a fresh one. Raises NotFoundError."""
        return await self._interpreter.restart(context)

    async def delete_context(self, context: str | Context) -> None:
        """End a context with all its processes. Deleting one that is not there is no error."""
        await self._interpreter.delete(context)

    async def interrupt(self, context: str | Context = "default", *, grace: float = 2.0) -> bool:
        """Interrupt what runs in a context as Ctrl-C does, and kill it after `grace` seconds.

        Returns whether something was running. Raises NotFoundError.
        """
        return await self._interpreter.interrupt(context, grace=grace)
