"""When a sandbox's time is over."""

import pytest
from sandfleet_executor.core.session.expiry import Expiry, Lease, Tenancy, expired


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
