"""Kopf's settings: watching costs little and delays nothing."""

from sandfleet_operator.reconciler.kopf_watch import NoDiffs, kopf_settings


def test_each_kind_can_show_a_thousand_objects_a_second():
    """Kopf's worker of an object keeps its place until it has been idle for this long, and there are few places."""
    queueing = kopf_settings().queueing
    assert queueing.worker_limit / queueing.idle_timeout >= 1000


def test_kopf_copies_no_object_for_diffs():
    storage = kopf_settings().persistence.diffbase_storage
    assert isinstance(storage, NoDiffs)
    assert storage.build(body={"spec": {"large": 1}}, extra_fields=[]) == {}
    assert storage.fetch(body={}) is None


def test_kopf_writes_no_events_and_needs_no_peers():
    settings = kopf_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone
