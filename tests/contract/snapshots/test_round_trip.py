"""Generated trees go through the executor's walk, the messages, the store, and the executor's writer."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from sandfleet_executor.servicers.convert import snapshots as executor
from sandfleet_operator.plan.snapshots.manifest import About
from sandfleet_operator.snapshots import transfer
from sandfleet_operator.snapshots.keys import key_file
from sandfleet_operator.snapshots.store import open_store
from support.executor.snapshot_trees import build, restored, saved, seen, trees


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_a_tree_comes_back_from_the_store_byte_for_byte(tree):
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        source, target = folder / "source", folder / "target"
        source.mkdir()
        target.mkdir()
        build(bytes(source), tree, [])
        entries, data, _ = saved(source, folder)
        store = open_store(f"file://{folder}/store", key_file(folder / "keys.json"))
        writer = store.writer("local", About())
        writer.add([transfer.entry_of(executor.entry_message(one)) for one in entries])
        for at in range(0, len(data), 70_000):
            writer.add([], data[at : at + 70_000])
        manifest = writer.commit(b"")
        back, content = [], b""
        for part in store.reader("local", manifest.id).parts():
            back += [executor.entry_of(transfer.message_of(one)) for one in part.entries]
            content += bytes(part.data)
        store.close()
        assert (back, content) == (entries, data)
        restored(target, back, content)
        assert seen(bytes(target)) == seen(bytes(source))
