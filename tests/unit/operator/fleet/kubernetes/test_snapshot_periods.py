"""On a cluster many sessions have one store: none is saved more often than once a minute."""

import pytest
from sandfleet_operator.api.kinds.sandbox import RecoveryFrom, SandboxSpec
from sandfleet_operator.fleet.kubernetes.declared_claims import _snapshot_period


@pytest.mark.parametrize(("asked", "period"), [(None, 300.0), (1.0, 60.0), (59.0, 60.0), (61.0, 61.0)])
def test_automatic_snapshots_of_a_declared_sandbox_are_a_minute_apart_at_least(asked, period):
    assert _snapshot_period(SandboxSpec(recovery=RecoveryFrom.SNAPSHOT, snapshot_period=asked)) == period
