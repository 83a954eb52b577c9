"""Variables that outlive their interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet import _api as api
from sandfleet import _late as late

if TYPE_CHECKING:
    from sandfleet.interpreter import Interpreter
    from sandfleet.state_values import Autosave, SavedState, StateRestored, StateSaved
    from sandfleet.transport import Link
    from sandfleet.values import Context

# Without a timeout, in seconds; and what an answer may take beyond its time.
_DEFAULT, _MARGIN = 60.0, 30.0


class AsyncStates:
    """Saved variables of one sandbox: files of its executor, out of user code's sight, that outlive executor and pod.

    Both save and restore wait for the running cell, and name each variable that they cannot save or bring back, with the
    reason. Pickles are made and read inside the sandbox alone, never here.
    """

    def __init__(self, link: Link, interpreter: Interpreter) -> None:
        """`AsyncSandbox.states` is one."""
        self._link = link
        self._interpreter = interpreter

    @property
    def autosave(self) -> Autosave | None:
        """What the sandbox's contexts are made with; None without automatic saves."""
        return self._interpreter.autosave

    async def save(
        self,
        name: str | None = None,
        *,
        context: str | Context = "default",
        max_bytes: int | None = None,
        max_variable_bytes: int | None = None,
        timeout: float | None = None,
    ) -> StateSaved:
        """Save the variables of a context under a name (None: the context's), in the place of an older state of that name.

        max_bytes, max_variable_bytes  of all and of one; None means 512 MiB, and as much as for all.
        timeout                        seconds; None means 60.

        Raises NotFoundError (no such context), PreconditionFailed (nothing to save, or nowhere to), NoSpace and LimitReached
        (the older state is whole), InvalidArgument, and SandboxError with the reason BrokenOff where it did not come to an end.
        """
        request = api.interpreter.SaveStateRequest(
            context_id=late.interpreter.context_name(context),
            name=name or "",
            max_bytes=max_bytes or 0,
            max_variable_bytes=max_variable_bytes or 0,
            timeout=late.convert.seconds(timeout),
        )
        answer = await self._link.unary(lambda c: c.interpreter.SaveState, request, timeout=self._patience(timeout))
        return late.convert_states.saved(answer)

    async def restore(
        self, name: str | None = None, *, context: str | Context = "default", timeout: float | None = None
    ) -> StateRestored:
        """Bring saved variables into a context (None: those saved under its name); names that are taken are overwritten.

        `timeout` in seconds; None means 60. What is not there by then is interrupted and named.

        Raises NotFoundError (no such context or state), PreconditionFailed (nowhere to keep states), InvalidArgument, and
        SandboxError with the reason BrokenOff (the interpreter ended: the context has a fresh one) or StateDamaged.
        """
        request = api.interpreter.RestoreStateRequest(
            context_id=late.interpreter.context_name(context), name=name or "", timeout=late.convert.seconds(timeout)
        )
        answer = await self._link.unary(lambda c: c.interpreter.RestoreState, request, timeout=self._patience(timeout))
        return late.convert_states.restored(answer)

    async def resume(self, context: str | Context = "default") -> StateRestored | None:
        """Make a context with an automatic save again where its executor was replaced, with the variables of the newest one.

        Cells do so by themselves; this says what came of it. None where the context is there, or nothing was saved.
        """
        return await self._interpreter.resume(late.interpreter.context_name(context))

    async def list(self) -> tuple[SavedState, ...]:
        """List the saved states by name; automatic saves are not among them. Raises PreconditionFailed."""
        request = api.interpreter.ListStatesRequest()
        answer = await self._link.unary(lambda c: c.interpreter.ListStates, request, idempotent=True)
        return tuple(late.convert.saved_state(message) for message in answer.states)

    async def delete(self, name: str) -> None:
        """Delete a saved state. Deleting one that is not there is no error."""
        request = api.interpreter.DeleteStateRequest(name=name)
        await self._link.unary(lambda c: c.interpreter.DeleteState, request, idempotent=True)

    def _patience(self, timeout: float | None) -> float:
        return (_DEFAULT if timeout is None else timeout) + _MARGIN + self._link.rpc_timeout
