"""mini-swe-agent: `environment_class: sandfleet.integrations.mini_swe_agent.SandfleetEnvironment` in its settings."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sandfleet import Outcome, Sandbox
from sandfleet.integrations._base import needed, not_lost

with needed("mini_swe_agent", "minisweagent"):
    from minisweagent.environments.local import LocalEnvironment, LocalEnvironmentConfig
    from minisweagent.utils.serialize import recursive_merge

# What `platform.uname` calls what `uname` says with each of these letters.
UNAME = {"system": "s", "node": "n", "release": "r", "version": "v", "machine": "m"}


class SandfleetEnvironmentConfig(LocalEnvironmentConfig, extra="allow"):  # type: ignore[call-arg]  # pydantic's
    """`cwd`, `env` and `timeout` are of each command; all others are options of `Sandbox.create`."""


class SandfleetEnvironment(LocalEnvironment):
    """An environment is a sandbox, from its first line to `cleanup`, or its lease once the object is gone.

    A failure of the platform ends the run: `SandboxError` is its exit status, and no observation of the model.
    """

    def __init__(self, *, config_class: type = SandfleetEnvironmentConfig, **kwargs: Any) -> None:
        super().__init__(config_class=config_class, **kwargs)
        self.sandbox = Sandbox.create(**{"keep_alive": True, **self.config.model_extra})

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a line of bash in a new shell."""
        run = not_lost(
            self.sandbox.commands.run(
                action.get("command", ""),
                cwd=cwd or self.config.cwd,
                envs=self.config.env,
                timeout=timeout or self.config.timeout,
                merge_output=True,
            )
        )
        is_late = run.outcome is Outcome.TIMEOUT
        output = {
            "output": run.stdout,
            "returncode": -1 if is_late else run.exit_code,
            "exception_info": f"An error occurred while executing the command: {run.message}" if is_late else "",
        }
        self._check_finished(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return what templates name: the settings and the system of the sandbox, and nothing of this machine."""
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), self._system, kwargs)
        return merged

    def cleanup(self) -> None:
        """End the sandbox."""
        self.sandbox.kill()

    @cached_property
    def _system(self) -> dict[str, str]:
        said = self.sandbox.commands.run(f"for each in {' '.join(UNAME.values())}; do uname -$each; done").stdout
        return dict(zip(UNAME, said.splitlines(), strict=False))
