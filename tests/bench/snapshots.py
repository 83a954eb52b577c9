"""Snapshots: a tree saved to S3, in full and with 1 % changed, beside `tar | zstd -3 -T1 | S3 upload` of the tree.

The server is versitygw on this machine. Each side is a process of its own. SANDFLEET_BENCH_MIB: the size of the tree.
"""

import json
import os
import random
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from figures import Figure, progress  # noqa: E402

MIB = 1 << 20
SIZE = int(os.environ.get("SANDFLEET_BENCH_MIB", "256")) * MIB
RUNS = 3
PIECE = 256 << 10
BUCKET = "bench"


def figures() -> Iterator[Figure]:
    from cluster.harness import binaries
    from cluster.harness import s3 as storage
    from cluster.harness.layout import cache
    from cluster.harness.progress import timed

    progress(f"snapshots of {SIZE // MIB} MiB on versitygw")
    with tempfile.TemporaryDirectory() as folder:
        program = binaries.provide(cache(), timed("bench"), ["versitygw"])["versitygw"]
        (Path(folder) / "s3").mkdir()
        server, process = storage.start(program, Path(folder) / "s3", "127.0.0.1")
        try:
            yield from measured(server, Path(folder) / "tree")
        finally:
            storage.stop(process)


def measured(server, tree: Path) -> Iterator[Figure]:
    made = make_tree(tree, SIZE)
    ask(server, "bucket")
    # In turns, so that what else the machine does meets both.
    ours, theirs = [], []
    for run in range(RUNS):
        theirs.append(ask(server, "pipe", str(tree), f"tar-{run}")["seconds"])
        ours.append(ask(server, "save", str(tree), f"full{run}"))
    full = min(ours, key=lambda one: one["seconds"])
    speed = made / full["seconds"] / 1e6
    note = "beside tar | zstd -3 -T1 | S3 upload; ≥ 0.8"
    yield Figure("snapshot in full", speed, "MB/s", made / min(theirs) / 1e6, note)
    yield Figure("stored of it", full["stored"] / MIB, "MiB", made / MIB, "beside the size of the tree")
    less = ask(server, "again", str(tree), "again")
    yield Figure("stored when 1 % has changed", less["stored"] / MIB, "MiB", full["stored"] / MIB, "≤ 0.1")
    yield Figure("time when 1 % has changed", less["seconds"], "s", full["seconds"], "beside the full one; ≤ 0.2")
    back = min((ask(server, "load", f"full{RUNS - 1}") for _ in range(RUNS)), key=lambda one: one["seconds"])
    yield Figure("restore, read and verified", made / back["seconds"] / 1e6, "MB/s", speed, "beside the save")
    make_tree(small := tree.parent / "small", SIZE // 8)
    tiny = ask(server, "save", str(small), "small")
    note = "beside that with an eighth of the data: flat"
    yield Figure("memory of a save, at most", full["memory"] / MIB, "MiB", tiny["memory"] / MIB, note)
    yield Figure("memory of a restore, at most", back["memory"] / MIB, "MiB", None, "")


def make_tree(root: Path, size: int) -> int:
    """Logs, tables of numbers, what does not compress, and thousands of small files; the same each time."""
    chance = random.Random(1)
    words = [chance.randbytes(chance.randrange(2, 8)).hex() for _ in range(5000)]
    left, number = size, 0
    while left > 0:
        kind = number % 20
        length = 8 * MIB if kind == 0 else 200_000 if kind < 8 else 3000
        folder = root / f"{number // 500:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        text = " ".join(chance.choices(words, k=length // 8)).encode()
        data = chance.randbytes(length) if kind in {0, 3} else text
        (folder / f"{number:06d}").write_bytes(data)
        left -= len(data)
        number += 1
    return size - left


def change(root: Path) -> None:
    """One file in a hundred is written anew, and each of the largest has a few bytes more in its middle."""
    chance = random.Random(2)
    for number, path in enumerate(sorted(path for path in root.rglob("*") if path.is_file())):
        size = path.stat().st_size
        if number % 100 == 50:
            path.write_bytes(chance.randbytes(size))
        elif number % 500 == 0:
            data = path.read_bytes()
            path.write_bytes(data[: size // 2] + b"changed" + data[size // 2 :])


def piped(client, tree: str, key: str) -> None:
    """The baseline; its upload is boto3's for streams, with parts of 8 MiB."""
    tar = subprocess.Popen(["tar", "-cf", "-", "-C", tree, "."], stdout=subprocess.PIPE)
    zstd = subprocess.Popen(["zstd", "-q", "-3", "-T1", "-c"], stdin=tar.stdout, stdout=subprocess.PIPE)
    client.upload_fileobj(zstd.stdout, BUCKET, key)
    assert (tar.wait(), zstd.wait()) == (0, 0)


def ask(server, *arguments: str) -> dict:
    keys = {"AWS_ACCESS_KEY_ID": server.root.access_key, "AWS_SECRET_ACCESS_KEY": server.root.secret_key}
    command = [sys.executable, __file__, server.endpoint, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, **keys})
    return json.loads(done.stdout)


def scan(root: Path) -> Iterator[tuple[list, bytes]]:
    from sandfleet_operator.plan.snapshots.entries import Entry, Kind

    def below(folder: str, path: bytes) -> Iterator[tuple[list, bytes]]:
        for entry in sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name)):
            inside = os.fsencode(entry.name) if not path else path + b"/" + os.fsencode(entry.name)
            status = entry.stat()
            if entry.is_dir():
                yield [Entry("workspace", inside, Kind.DIRECTORY, 0o755, status.st_mtime_ns)], b""
                yield from below(entry.path, inside)
                continue
            head = [Entry("workspace", inside, Kind.FILE, 0o644, status.st_mtime_ns, status.st_size)]
            with Path(entry.path).open("rb") as file:
                while (data := file.read(PIECE)) or head:
                    yield head, data
                    head = []

    yield [Entry("workspace", b"", Kind.DIRECTORY, 0o755)], b""
    yield from below(str(root), b"")


def saved_again(store, tree: Path, tenant: str) -> tuple[float, int]:
    """When the second save of a tree began of which 1 % has changed, and what it has stored.

    The walk is the executor's, which does not read again what has not changed. Only gRPC is left out.
    """
    from sandfleet_operator.plan.snapshots.manifest import About

    first = store.writer(tenant, About(), "s-first")
    ledger = walked(tree, first, None)
    first.commit()
    change(tree)
    start = time.perf_counter()
    second = store.writer(tenant, About(), "s-second", base="s-first")
    walked(tree, second, ledger)
    return start, second.commit().stored_bytes


def walked(tree: Path, writer, before):
    """Saves a tree as an executor does; the stamps of what was read."""
    from sandfleet_api.executor.v1 import snapshot_pb2 as pb
    from sandfleet_executor.effects.snapshots.ledger import Earlier, Ledger, tells_changes
    from sandfleet_executor.effects.snapshots.scan import Scan
    from sandfleet_executor.effects.snapshots.spool import Pieces, Spool, unnamed_file
    from sandfleet_executor.servicers.convert import snapshots as convert
    from sandfleet_operator.snapshots.transfer import entry_of

    fd = os.open(tree, os.O_RDONLY)
    assert tells_changes(fd), "this file system does not tell what has changed"
    ledger, spool = Ledger(unnamed_file(tree.parent)), Spool(unnamed_file(tree.parent))
    scan = Scan(spool.put, lambda: True, Earlier(before).has)
    began = time.time_ns()
    scan.run(os.dup(fd))
    pieces = Pieces(spool, fd, scan.unsaved, ledger, began)
    while (piece := pieces.next()) is not None:
        # Through the messages, as it is on the wire.
        said = pb.SnapshotPart.FromString(convert.piece_message(*piece).SerializeToString())
        known = frozenset(at for at, one in enumerate(said.entries) if one.known)
        writer.add([entry_of(one) for one in said.entries], said.data, known)
    pieces.close()
    return ledger


def main(endpoint: str, what: str, *arguments: str) -> None:
    """One side of a measurement, in its own process."""
    from sandfleet_operator.plan.snapshots.manifest import About
    from sandfleet_operator.snapshots.backends.s3 import S3Objects, connect
    from sandfleet_operator.snapshots.keys import SecretKeys
    from sandfleet_operator.snapshots.store import SnapshotStore

    client = connect(endpoint)
    store = SnapshotStore(S3Objects(client, BUCKET), SecretKeys({"bench": bytes(32)}, "bench"))
    start, stored = time.perf_counter(), 0
    if what == "bucket":
        client.create_bucket(Bucket=BUCKET)
    elif what == "pipe":
        piped(client, *arguments)
    elif what == "again":
        start, stored = saved_again(store, Path(arguments[0]), arguments[1])
    elif what == "save":
        # A tenant of its own knows no chunk yet.
        writer = store.writer(arguments[1], About(), f"s-{secrets.token_hex(4)}")
        for entries, data in scan(Path(arguments[0])):
            writer.add(entries, data)
        stored = writer.commit().stored_bytes
    else:
        tenant = arguments[0]
        for _ in store.reader(tenant, next(iter(store.list(tenant))).id).parts():
            pass
    seconds = time.perf_counter() - start
    # Not ru_maxrss, which begins with that of the parent.
    memory = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps({"seconds": seconds, "stored": stored, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
