"""The part of Sandbox that runs code in contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandfleet._background import Relay, mirrors, run
from sandfleet.sandbox_code import AsyncCode

if TYPE_CHECKING:
    from sandfleet.rollback import OnFailure
    from sandfleet.state_values import Autosave
    from sandfleet.values import Context, Execution, OnResult, OnText


@mirrors(AsyncCode)
class Code:
    _async: AsyncCode

    def run_code(
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
        relay = Relay()
        return run(
            self._async.run_code(
                code,
                language=language,
                context=context,
                timeout=timeout,
                on_stdout=relay.wrap(on_stdout),
                on_stderr=relay.wrap(on_stderr),
                on_result=relay.wrap(on_result),
                envs=envs,
                output_limit=output_limit,
                execution_id=execution_id,
                on_failure=on_failure,
            ),
            relay,
        )

    def attach(
        self,
        execution_id: str,
        *,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
    ) -> Execution:
        relay = Relay()
        attaching = self._async.attach(
            execution_id,
            on_stdout=relay.wrap(on_stdout),
            on_stderr=relay.wrap(on_stderr),
            on_result=relay.wrap(on_result),
        )
        return run(attaching, relay)

    def create_context(
        self,
        context_id: str | None = None,
        *,
        language: str = "python",
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        autosave: bool | Autosave | None = None,
    ) -> Context:
        return run(self._async.create_context(context_id, language=language, cwd=cwd, envs=envs, autosave=autosave))

    def fork_context(
        self, context: str | Context = "default", count: int = 1, *, context_ids: Sequence[str] | None = None
    ) -> tuple[Context, ...]:
        return run(self._async.fork_context(context, count, context_ids=context_ids))

    def list_contexts(self) -> tuple[Context, ...]:
        return run(self._async.list_contexts())

    def restart_context(self, context: str | Context = "default") -> Context:
        return run(self._async.restart_context(context))

    def delete_context(self, context: str | Context) -> None:
        return run(self._async.delete_context(context))

    def interrupt(self, context: str | Context = "default", *, grace: float = 2.0) -> bool:
        return run(self._async.interrupt(context, grace=grace))
