"""Failures of the platform are smolagents' own errors; an executor without `cleanup` leaves nothing behind."""

import gc
from datetime import timedelta

import pytest
from sandfleet import Sandbox
from sandfleet.errors import SandboxEnded, UnavailableError
from sandfleet.integrations.smolagents import SandfleetExecutor
from smolagents.utils import AgentExecutionError

LEASE = 2.0


def test_a_sandbox_that_has_ended_is_theirs_with_the_cause() -> None:
    executor = SandfleetExecutor()
    executor.sandbox.kill()
    with pytest.raises(AgentExecutionError, match="the sandbox failed, which is no fault of the code") as failed:
        executor("1")
    assert isinstance(failed.value.__cause__, SandboxEnded)


def test_a_sandbox_that_cannot_be_made_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(**_: object) -> None:
        raise UnavailableError("cannot create a sandbox: the fleet is full")

    monkeypatch.setattr(Sandbox, "create", create)
    with pytest.raises(AgentExecutionError, match="the fleet is full"):
        SandfleetExecutor()


def test_a_forgotten_executor_is_renewed_no_more() -> None:
    executor = SandfleetExecutor(timeout=LEASE)
    first = executor.sandbox.get_info().lease_expires
    # The control: it outlives its lease while the executor is there.
    while executor.sandbox.get_info().lease_expires - first < timedelta(seconds=LEASE):
        pass
    sandbox_id = executor.sandbox.sandbox_id
    del executor
    gc.collect()
    while sandbox_id in {one.sandbox_id for one in Sandbox.list()}:
        pass
