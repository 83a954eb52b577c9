"""Files on two real directory trees: moving, removing, and the rights of the sandbox's user."""

# What is tested works on names and descriptors, and so do the checks.
# ruff: noqa: PTH104, PTH108, PTH115, PTH208, PTH211

import errno
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest
from sandfleet_executor.effects.files import files, trees
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.trees import NotARegularFile, TooManyEntries
from support.executor.file_trees import attempt, error_of, world_fixture

# pytest finds a fixture by its name in the module.
world = world_fixture


# Moving


def test_moving_makes_parents_and_asks_before_it_overwrites(world):
    (world.workspace / "f").write_text("f")
    (world.workspace / "g").write_text("g")
    assert error_of(files.move, world.pins, b"f", b"g", overwrite=False) == errno.EEXIST
    assert files.move(world.pins, b"f", b"g", overwrite=True).path == b"/workspace/g"
    assert files.move(world.pins, b"g", b"x/y/g", overwrite=False).size == 1
    assert (world.workspace / "x/y/g").read_text() == "f"


def test_a_link_is_moved_and_not_what_it_leads_to(world):
    (world.workspace / "link").symlink_to("../secret")
    assert files.move(world.pins, b"link", b"/tmp/moved", overwrite=False).target == b"../secret"
    assert (world.base / "secret").exists()


def test_a_directory_is_not_moved_into_itself(world):
    (world.workspace / "a").mkdir()
    assert error_of(files.move, world.pins, b"a", b"a/b", overwrite=False) == errno.EINVAL


@pytest.mark.parametrize("path", [b".", b"/workspace", b"/tmp/", b"a/.."])
def test_the_roots_are_neither_moved_nor_removed(world, path):
    (world.workspace / "a").mkdir()
    assert error_of(files.remove, world.pins, path, recursive=True) == errno.EPERM
    assert error_of(files.move, world.pins, path, b"x", overwrite=True) == errno.EPERM
    assert error_of(files.move, world.pins, b"a", path, overwrite=True) == errno.EPERM
    assert (world.workspace / "a").exists()


def grow_tree(base):
    (base / "t/sub/empty").mkdir(parents=True)
    (base / "t/f").write_bytes(b"x" * 3_000_000)
    (base / "t/sub/g").write_text("g")
    (base / "t/sub/g").chmod(0o640)
    (base / "t/link").symlink_to("/etc/passwd")
    os.utime(base / "t/sub/g", ns=(1, 1_500_000_000_000_000_001))
    (base / "t/sub").chmod(0o555)


def test_a_tree_is_moved_from_one_root_to_the_other_with_modes_times_and_links(world):
    grow_tree(world.workspace)
    assert files.move(world.pins, b"t", b"/tmp/new/t", overwrite=False).path == b"/tmp/new/t"
    moved = world.tmp / "new/t"
    assert os.listdir(world.workspace) == []
    assert (moved / "f").stat().st_size == 3_000_000
    assert (moved / "sub/empty").is_dir()
    assert stat.S_IMODE((moved / "sub").stat().st_mode) == 0o555
    assert stat.S_IMODE((moved / "sub/g").stat().st_mode) == 0o640
    assert (moved / "sub/g").stat().st_mtime_ns == 1_500_000_000_000_000_001
    assert os.readlink(moved / "link") == "/etc/passwd"
    (moved / "sub").chmod(0o755)


@pytest.fixture
def two_file_systems(world):
    if world.workspace.stat().st_dev == world.tmp.stat().st_dev:
        pytest.skip("this machine has one file system only")
    return world


def test_a_move_to_the_other_root_that_fails_loses_nothing(two_file_systems):
    world = two_file_systems
    (world.workspace / "t").mkdir()
    (world.workspace / "t/f").write_text("x")
    os.mkfifo(world.workspace / "t/pipe")
    with pytest.raises(NotARegularFile):
        files.move(world.pins, b"t", b"/tmp/t", overwrite=False)
    assert sorted(os.listdir(world.workspace / "t")) == ["f", "pipe"]
    assert os.listdir(world.tmp) == []


def test_a_move_to_the_other_root_does_not_overwrite_unasked(two_file_systems):
    world = two_file_systems
    (world.workspace / "f").write_text("new")
    (world.tmp / "f").write_text("old")
    assert error_of(files.move, world.pins, b"f", b"/tmp/f", overwrite=False) == errno.EEXIST
    assert (world.tmp / "f").read_text() == "old"
    files.move(world.pins, b"f", b"/tmp/f", overwrite=True)
    assert (world.tmp / "f").read_text() == "new"
    assert not (world.workspace / "f").exists()


def test_what_changed_while_it_was_moved_to_the_other_root_stays(two_file_systems, monkeypatch):
    world = two_file_systems
    (world.workspace / "t").mkdir()
    (world.workspace / "t/f").write_text("before")
    copy = trees.copy_tree

    def copy_and_disturb(*args):
        copied = copy(*args)
        (world.workspace / "t/f").write_text("written meanwhile")
        return copied

    monkeypatch.setattr(trees, "copy_tree", copy_and_disturb)
    assert error_of(files.move, world.pins, b"t", b"/tmp/t", overwrite=False) == errno.EBUSY
    assert (world.workspace / "t/f").read_text() == "written meanwhile"
    assert (world.tmp / "t/f").read_text() == "before"


def test_a_tree_with_too_many_entries_is_not_copied(two_file_systems, monkeypatch):
    world = two_file_systems
    monkeypatch.setattr(trees, "MAX_COPIED_ENTRIES", 10)
    (world.workspace / "t").mkdir()
    for number in range(12):
        (world.workspace / f"t/{number}").touch()
    with pytest.raises(TooManyEntries):
        files.move(world.pins, b"t", b"/tmp/t", overwrite=False)
    assert len(os.listdir(world.workspace / "t")) == 12
    assert os.listdir(world.tmp) == []


# Removing


def test_a_link_is_removed_and_not_what_it_leads_to(world):
    outside = world.base / "outside"
    outside.mkdir()
    (outside / "f").touch()
    (world.workspace / "t").mkdir()
    (world.workspace / "t/link").symlink_to(outside)
    (world.workspace / "link").symlink_to(outside)
    files.remove(world.pins, b"t", recursive=True)
    files.remove(world.pins, b"link", recursive=True)
    assert os.listdir(world.workspace) == []
    assert (outside / "f").exists()


def test_a_link_with_a_slash_is_no_directory_to_be_removed(world):
    (world.workspace / "d").mkdir()
    (world.workspace / "link").symlink_to("d")
    assert error_of(files.remove, world.pins, b"link/", recursive=True) == errno.ENOTDIR
    assert (world.workspace / "d").exists()


def test_a_full_directory_is_removed_only_when_that_is_asked_for(world):
    (world.workspace / "d").mkdir()
    (world.workspace / "d/f").touch()
    assert error_of(files.remove, world.pins, b"d", recursive=False) == errno.ENOTEMPTY
    files.remove(world.pins, b"d", recursive=True)
    assert error_of(files.remove, world.pins, b"d", recursive=True) == errno.ENOENT


def grow_chain(base, levels):
    fd = os.open(base, os.O_DIRECTORY)
    for level in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_DIRECTORY, dir_fd=fd)
        if level % 100 == 0:
            os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(fd)
        fd = inner
    os.close(fd)


@pytest.mark.slow
def test_a_tree_of_two_thousand_levels_is_removed(world):
    grow_chain(world.workspace, 2000)
    files.remove(world.pins, b"d", recursive=True)
    assert os.listdir(world.workspace) == []


@pytest.mark.slow
def test_a_tree_of_two_thousand_levels_is_moved_to_the_other_root(world):
    grow_chain(world.workspace, 2000)
    files.move(world.pins, b"d", b"/tmp/d", overwrite=False)
    assert os.listdir(world.workspace) == []
    files.remove(world.pins, b"/tmp/d", recursive=True)
    assert os.listdir(world.tmp) == []


@pytest.mark.slow
def test_a_wide_tree_is_removed(world):
    for outer in range(30):
        for inner in range(30):
            (world.workspace / f"t/{outer}/{inner}/x").mkdir(parents=True)
            (world.workspace / f"t/{outer}/{inner}/f").touch()
    files.remove(world.pins, b"t", recursive=True)
    assert os.listdir(world.workspace) == []


@pytest.mark.slow
def test_a_removal_races_with_links_and_never_leaves_the_tree(world):
    outside = world.base / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    over = threading.Event()
    swapper = threading.Thread(target=disturb_until, args=(world.workspace / "t", outside, over))
    swapper.start()
    try:
        for _ in range(300):
            attempt(lambda path: files.make_dir(world.pins, path), b"t/a/b")
            attempt(lambda path: files.remove(world.pins, path, recursive=True), b"t")
    finally:
        over.set()
        swapper.join()
    assert (outside / "precious").exists()


def disturb_until(tree, outside, over):
    while not over.is_set():
        try:
            os.rename(tree / "a", tree / "x")
            os.symlink(outside, tree / "a")
            os.unlink(tree / "a")
            os.rename(tree / "x", tree / "a")
        except OSError:
            continue


# The rights of the sandbox's user

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's rights on files")
USER = 61_234


@pytest.fixture
def owned(world):
    os.chown(world.workspace, USER, USER)
    for folder in (world.workspace, *world.workspace.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    threads = FileThreads(USER)
    yield world, threads
    threads.close()


@pytest.mark.root
@ROOT
async def test_files_are_made_as_the_user(owned):
    world, threads = owned
    await threads.run(world.write, b"a/f", b"x")
    status = (world.workspace / "a/f").stat()
    assert (status.st_uid, status.st_gid) == (USER, USER)
    assert (world.workspace / "a").stat().st_uid == USER


@pytest.mark.root
@ROOT
async def test_the_kernel_refuses_what_the_user_may_not(owned):
    world, threads = owned
    (world.workspace / "roots").write_text("x")
    (world.workspace / "roots").chmod(0o600)
    with pytest.raises(PermissionError):
        await threads.run(world.read, b"roots")
    with pytest.raises(PermissionError):
        await threads.run(world.write, b"roots")
    # The control: without the user's rights the same call works, and other threads still have root's.
    assert world.read(b"roots") == b"x"


@pytest.mark.root
@ROOT
async def test_the_groups_of_the_executor_are_not_the_user_s(owned):
    world, threads = owned
    secret = world.workspace / "group"
    secret.write_text("x")
    os.chown(secret, 0, 0)
    secret.chmod(0o040)
    before = os.getgroups()
    os.setgroups([0])
    try:
        with pytest.raises(PermissionError):
            await threads.run(world.read, b"group")
        assert os.getgroups() == [0]
    finally:
        os.setgroups(before)


@pytest.mark.root
@ROOT
async def test_a_file_that_is_read_only_is_not_replaced(owned):
    world, threads = owned
    await threads.run(world.write, b"f", b"keep", 0o444)
    with pytest.raises(PermissionError):
        await threads.run(world.write, b"f", b"new")
    assert (world.workspace / "f").read_bytes() == b"keep"


@pytest.mark.root
@ROOT
async def test_a_directory_that_may_not_be_read_is_listed_without_its_entries(owned):
    world, threads = owned
    await threads.run(world.write, b"d/f", b"x")
    (world.workspace / "d").chmod(0)
    paths, _ = await threads.run(world.list, b".", 5)
    assert paths == [b"/workspace/d"]
    with pytest.raises(PermissionError):
        await threads.run(world.list, b"d")
    shutil.rmtree(world.workspace / "d")
