"""Kopf's handlers and settings: watching costs little and delays nothing."""

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX
from sandfleet_operator.reconciler.kopf_watch import PAGE, NoDiffs, kopf_settings, registry


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


class Heard:
    """Stands for the operator and for its heartbeat."""

    def __init__(self):
        self.news = []

    def saw(self, deleted, obj, *, listed=False):
        self.news.append((obj["kind"], deleted, listed))

    def echo(self, obj):
        self.news.append(obj["metadata"]["name"])


@pytest.mark.parametrize(
    ("type_", "deleted", "listed"), [(None, False, True), ("ADDED", False, False), ("DELETED", True, False)]
)
async def test_the_operator_hears_what_kopf_lists_and_what_it_watches(type_, deleted, listed):
    heard = Heard()
    handlers = {one.id: one for one in registry(heard, heard)._watching.get_all_handlers()}
    assert sorted(handlers) == ["codesandboxes", "pods"]
    await handlers["codesandboxes"].fn(event={"type": type_, "object": {"metadata": {"name": "one"}}})
    await handlers["pods"].fn(event={"type": type_, "object": {"metadata": {"name": "operator-0"}}})
    assert heard.news == [(CODE_SANDBOX.kind, deleted, listed), "operator-0"]


async def test_kopf_keeps_nothing_large_of_an_object_that_was_taken_in():
    """Its view of an object is a cycle, which lives on until the collector finds it."""
    seen = []

    class Whole(Heard):
        def saw(self, deleted, obj, *, listed=False):
            seen.append((set(obj), set(obj["metadata"])))

    meta = {"name": "one", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{}]}
    heard = Whole()
    handlers = {one.id: one for one in registry(heard, heard)._watching.get_all_handlers()}
    for name in ("codesandboxes", "pods"):
        raw = {"metadata": dict(meta), "spec": {"large": 1}, "status": {"large": 1}}
        await handlers[name].fn(event={"type": "ADDED", "object": raw})
        assert raw == {"metadata": {"name": "one", "uid": "u"}}
    assert seen == [({"apiVersion", "kind", "metadata", "spec", "status"}, set(meta))]


def test_kopf_lists_in_pages():
    assert kopf_settings().watching.chunk_size == PAGE


def test_of_pods_kopf_watches_only_the_operator_s_own():
    (selector,) = kopf_settings().watching.label_selectors.values()
    assert selector == "sandfleet.io/component=operator"
