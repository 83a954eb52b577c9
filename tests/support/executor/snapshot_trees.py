"""Generated trees of files, read and written by the executor's own walk and writer."""

# Names are bytes here, which pathlib has not.
# ruff: noqa: PTH101, PTH102, PTH115, PTH118, PTH123, PTH208, PTH211

import os
import stat
from pathlib import Path

from hypothesis import strategies as st
from sandfleet_executor.core.snapshots.assembly import Assembly
from sandfleet_executor.effects.snapshots import swap
from sandfleet_executor.effects.snapshots.fill import Filler
from sandfleet_executor.effects.snapshots.scan import Scan
from sandfleet_executor.effects.snapshots.spool import Pieces, Spool, unnamed_file
from sandfleet_executor.effects.snapshots.swap import Mark

GIB = 1 << 30
NAMES = (
    st.binary(min_size=1, max_size=12)
    .filter(lambda one: b"/" not in one and b"\0" not in one)
    .filter(lambda one: one not in (b".", b".."))
)
# What ext4 has.
TIMES = st.integers(min_value=-(1 << 31) * 10**9, max_value=(1 << 33) * 10**9)
CONTENTS = st.one_of(
    st.just(b""),
    st.binary(max_size=64),
    st.integers(1, 40).map(lambda count: os.urandom(count * 7919)),
)


@st.composite
def trees(draw, depth=3):
    """{name: (kind, mode, time, contents)}"""
    found = {}
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["file", "sparse", "link", "again", "folder"]))
        inside = draw(trees(depth=depth - 1)) if kind == "folder" and depth else {}
        text = draw(st.binary(min_size=1, max_size=20).filter(lambda one: b"\0" not in one))
        contents = {"folder": inside, "link": text}.get(kind) or draw(CONTENTS)
        mode = draw(st.integers(0, 0o7777)) | (0o700 if kind == "folder" else 0o400)
        found[name] = (kind, mode, draw(TIMES), contents if kind != "folder" else inside)
    return found


def build(place, tree, known):
    for name, (kind, mode, moment, contents) in tree.items():
        path = os.path.join(place, name)
        if kind == "folder":
            os.mkdir(path)
            build(path, contents, known)
        elif kind == "link":
            os.symlink(contents, path)
        elif kind == "again" and known:
            os.link(known[-1], path)
            continue
        else:
            with open(path, "wb") as file:
                if kind == "sparse":
                    file.write(contents)
                    file.seek(1 << 18)
                    file.write(contents)
                    file.truncate(1 << 19)
                else:
                    file.write(contents)
            if kind == "file" and len(contents) % 2:
                os.setxattr(path, b"user.note", contents[:40])
            known.append(path)
        if kind != "link":
            os.chmod(path, mode)
        os.utime(path, ns=(moment, moment), follow_symlinks=False)


def seen(place):
    """All of a tree that a program can see, by path."""
    found = {}
    for above, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            status = os.lstat(path)
            link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
            data = Path(os.fsdecode(path)).read_bytes() if stat.S_ISREG(status.st_mode) else None
            names = status.st_nlink if data is not None else 0
            attributes = [] if link else [(one, os.getxattr(path, one)) for one in os.listxattr(path)]
            key = os.path.relpath(path, place)
            found[key] = (
                status.st_mode,
                status.st_mtime_ns,
                names,
                link,
                data,
                attributes,
                status.st_blocks if data else 0,
            )
    return found


def saved(place, folder):
    """The entries and the data of a tree, and what was not saved."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    spool = Spool(unnamed_file(folder))
    scan = Scan(spool.put, lambda: len(os.listdir(place)) % 2 == 0)
    scan.run(os.dup(fd))
    pieces, entries, data = Pieces(spool, fd, scan.unsaved), [], b""
    while (piece := pieces.next()) is not None:
        entries += piece[0]
        data += piece[1]
    pieces.close()
    assert (scan.totals.entries, scan.totals.bytes) == (len(entries), len(data))
    return entries, data, scan.unsaved


def restored(place, entries, data, *, cut=5000, most=GIB):
    """Written in pieces, and put in place. Raises InvalidEntry, OSError."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    filler, assembly = Filler(fd, most), Assembly()
    try:
        filler.take(assembly.feed(entries, b""))
        for at in range(0, len(data), cut):
            filler.take(assembly.feed([], data[at : at + cut]))
        assembly.finish(assembly.totals)
        filled = filler.finish()
        late = tuple((name.hex(), mode) for name, mode in filled.late)
        mark = Mark(filled.name.hex(), b".sandfleet-partial-old".hex(), late=late)
        swap.empty(fd, mark)
        swap.fill(fd, mark)
        swap.remove_forced(fd, b".sandfleet-partial-old")
        return filler.unrestored
    finally:
        filler.close()
        os.close(fd)
