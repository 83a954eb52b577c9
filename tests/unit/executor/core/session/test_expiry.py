"""When a sandbox's time is over, and what counts as its use."""

import pytest
from sandfleet_api.executor.v1 import (
    interpreter_pb2,
    journal_pb2,
    process_pb2,
    review_pb2,
    service_pb2,
    session_pb2,
    snapshot_pb2,
    tools_pb2,
)
from sandfleet_executor.core.session.expiry import LOOKING, Expiry, Lease, Tenancy, expired, is_use


@pytest.mark.parametrize(
    ("lease", "now", "last_use", "expiry"),
    [
        (Lease(), 1e9, 0.0, None),
        (Lease(until=100.0), 99.9, 0.0, None),
        (Lease(until=100.0), 100.0, 100.0, Expiry.LEASE),
        (Lease(idle_timeout=10.0), 19.9, 10.0, None),
        (Lease(idle_timeout=10.0), 20.0, 10.0, Expiry.IDLE),
        (Lease(until=100.0, idle_timeout=10.0), 100.0, 0.0, Expiry.LEASE),
    ],
)
def test_a_sandbox_expires_with_its_lease_or_without_use(lease, now, last_use, expiry):
    assert expired(lease, now, last_use) is expiry


def test_a_running_execution_is_use_and_the_idle_time_begins_after_it():
    tenancy = Tenancy(Lease(idle_timeout=10.0), 0.0)
    assert tenancy.expired(50.0, in_use=True) is None
    assert tenancy.expired(59.9, in_use=False) is None
    assert tenancy.expired(60.0, in_use=False) is Expiry.IDLE


def test_a_touch_begins_the_idle_time_anew():
    tenancy = Tenancy(Lease(idle_timeout=10.0), 0.0)
    tenancy.touch(5.0)
    assert tenancy.expired(14.9, in_use=False) is None
    assert tenancy.expired(15.0, in_use=False) is Expiry.IDLE


@pytest.mark.parametrize(("now", "remaining"), [(40.0, 60.0), (100.0, 0.0), (200.0, 0.0)])
def test_what_remains_of_a_lease_is_never_below_0(now, remaining):
    assert Lease(until=100.0).remaining(now) == remaining
    assert Lease().remaining(now) is None


def methods():
    for module in (
        interpreter_pb2,
        journal_pb2,
        process_pb2,
        review_pb2,
        service_pb2,
        session_pb2,
        snapshot_pb2,
        tools_pb2,
    ):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from (f"/{service.full_name}/{method.name}" for method in service.methods)


def test_only_rpcs_that_look_are_no_use():
    looking = [method for method in methods() if not is_use(method)]
    assert sorted(method.rpartition(".")[2] for method in looking) == [
        "JournalService/Head",
        "JournalService/Read",
        "ReviewService/WatchPending",
        "ServiceManagerService/List",
        "SessionService/Describe",
        "SessionService/Health",
        "SessionService/ProbeEgress",
        "SessionService/Usage",
        "SessionService/WatchUsage",
        "SnapshotService/Save",
        "ToolBrokerService/Serve",
    ]
    assert len(looking) == len(LOOKING)
