"""What Kopf is told, so that watching costs little and holds nothing up."""

from sandfleet_operator.handlers.watch import NoDiffs, kopf_settings


def test_each_kind_can_show_a_thousand_objects_a_second():
    """Kopf's worker of an object keeps its place among the few that there are until it has been idle for so long."""
    queueing = kopf_settings().queueing
    assert queueing.worker_limit / queueing.idle_timeout >= 1000


def test_no_object_is_copied_to_find_out_what_changed_in_it():
    storage = kopf_settings().persistence.diffbase_storage
    assert isinstance(storage, NoDiffs)
    assert storage.build(body={"spec": {"large": 1}}, extra_fields=[]) == {}
    assert storage.fetch(body={}) is None


def test_kopf_writes_neither_events_nor_asks_for_peers():
    settings = kopf_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone
