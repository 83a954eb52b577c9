"""Variables that outlive their interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import variables as convert_variables
from sandfleet.resources.contexts import context_name

if TYPE_CHECKING:
    from sandfleet._wire.link import Link
    from sandfleet.resources.contexts import Interpreter
    from sandfleet.values.execution import Context
    from sandfleet.values.variables import Autosave, SavedState, StateRestored, StateSaved

# The timeout by default, and how much longer an answer may take, in seconds.
_DEFAULT, _MARGIN = 60.0, 30.0


class AsyncStates:
    """Saved variables of one sandbox. The executor stores them where user code cannot see them; they outlive the pod.

    Save and restore wait for a running cell. They name each variable that they cannot save or restore, with the reason.
    Pickles are written and read only inside the sandbox, never here.
    """

    def __init__(self, link: Link, interpreter: Interpreter) -> None:
        """Use `sandbox.states`."""
        self._link = link
        self._interpreter = interpreter

    @property
    def autosave(self) -> Autosave | None:
        """The automatic saves of the sandbox's contexts; None without them."""
        return self._interpreter.autosave

    @checked
    async def save(
        self,
        name: str | None = None,
        *,
        context: str | Context = "default",
        max_bytes: int | None = None,
        max_variable_bytes: int | None = None,
        timeout: float | None = None,
    ) -> StateSaved:
        """Save the variables of a context under a name (None: the context's). Replaces an older state of the same name.

        max_bytes           largest size of all variables; None means 512 MiB.
        max_variable_bytes  largest size of one variable; None means `max_bytes`.
        timeout             seconds; None means 60.

        Raises NotFoundError (no such context), PreconditionFailed (no variables to save, or no storage), NoSpace and
        LimitReached (the older state is kept), InvalidArgument, and SandboxError with the reason BrokenOff (the save
        was interrupted).
        """
        request = api.interpreter.SaveStateRequest(
            context_id=context_name(context),
            name=name or "",
            max_bytes=max_bytes or 0,
            max_variable_bytes=max_variable_bytes or 0,
            timeout=convert.seconds(timeout),
        )
        answer = await self._link.unary(lambda c: c.interpreter.SaveState, request, timeout=self._patience(timeout))
        return convert_variables.saved(answer)

    @checked
    async def restore(
        self, name: str | None = None, *, context: str | Context = "default", timeout: float | None = None
    ) -> StateRestored:
        """Restore saved variables into a context (None: those saved under its name), over variables of the same names.

        `timeout` in seconds; None means 60. Variables that are not restored by then are named in the result.

        Raises NotFoundError (no such context or state), PreconditionFailed (no storage), InvalidArgument, and
        SandboxError with the reason BrokenOff (the interpreter ended: the context has a new one) or StateDamaged.
        """
        request = api.interpreter.RestoreStateRequest(
            context_id=context_name(context), name=name or "", timeout=convert.seconds(timeout)
        )
        answer = await self._link.unary(lambda c: c.interpreter.RestoreState, request, timeout=self._patience(timeout))
        return convert_variables.restored(answer)

    @checked
    async def resume(self, context: str | Context = "default") -> StateRestored | None:
        """Create a context again on a new executor, with the variables of its newest automatic save.

        Cells do this by themselves; this call returns what was restored. None if the context exists, or has no save.
        """
        return await self._interpreter.resume(context_name(context))

    async def list(self) -> tuple[SavedState, ...]:
        """List the saved states by name; automatic saves are not among them. Raises PreconditionFailed."""
        request = api.interpreter.ListStatesRequest()
        answer = await self._link.unary(lambda c: c.interpreter.ListStates, request, idempotent=True)
        return tuple(convert.saved_state(message) for message in answer.states)

    @checked
    async def delete(self, name: str) -> None:
        """Delete a saved state. Deleting a state that does not exist is no error."""
        request = api.interpreter.DeleteStateRequest(name=name)
        await self._link.unary(lambda c: c.interpreter.DeleteState, request, idempotent=True)

    def _patience(self, timeout: float | None) -> float:
        return (_DEFAULT if timeout is None else timeout) + _MARGIN + self._link.rpc_timeout
