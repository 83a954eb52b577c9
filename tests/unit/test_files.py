"""Files on two real directory trees: resolution, races, reading, writing, moving, removing and listing."""

# What is tested works on names and descriptors, and so do the checks.
# ruff: noqa: PTH104, PTH108, PTH115, PTH208, PTH211

import errno
import os
import shutil
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from sandfleet_executor.core.paths import InvalidPath
from sandfleet_executor.effects import files, trees
from sandfleet_executor.effects.trees import NotARegularFile, TooManyEntries
from sandfleet_executor.effects.userthreads import FileThreads
from sandfleet_executor.effects.walk import WINDOW, Roots, RootUnavailable


class World:
    """The two trees as real directories, side by side with a secret."""

    def __init__(self, base, tmp):
        self.base, self.workspace, self.tmp = base, base / "ws", tmp
        self.workspace.mkdir()
        (base / "secret").write_text("SECRET")
        self.fds = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (self.workspace, tmp)]
        self.roots = Roots(self.fds[0], lambda: self.fds[1])
        self.pins = self.roots.pin()

    def close(self):
        self.pins.close()
        for fd in self.fds:
            os.close(fd)

    def read(self, path, offset=0, size=1 << 20):
        download = files.Download(self.pins, path)
        try:
            return download.read(offset, size)
        finally:
            download.close()

    def write(self, path, data=b"new", mode=0):
        upload = files.Upload(self.pins, path, mode)
        try:
            upload.write(data)
            return upload.commit()
        finally:
            upload.discard()

    def list(self, path=b".", depth=1, limit=1000, after=()):
        page = files.list_directory(self.pins, path, depth=depth, limit=limit, after=after)
        return [entry.path for entry in page.entries], page.cursor


@pytest.fixture
def world(tmp_path):
    # Another file system, as in a sandbox, where the machine has one.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as tmp:
        fds_before = len(os.listdir("/proc/self/fd"))
        world = World(tmp_path, Path(tmp))
        yield world
        world.close()
        assert len(os.listdir("/proc/self/fd")) == fds_before, "a descriptor was left open"


def error_of(function, *args, **kwargs):
    with pytest.raises(OSError) as caught:
        function(*args, **kwargs)
    return caught.value.errno


# Where a path leads


@pytest.mark.parametrize(
    "path",
    [
        b"a/f",
        b"/workspace/a/f",
        b"a/../a/f",
        b"../workspace/a/f",
        b"/tmp/../workspace/./a//f",
        b"../../../workspace/a/f",
    ],
)
def test_a_path_inside_is_found_however_it_is_written(world, path):
    (world.workspace / "a").mkdir()
    (world.workspace / "a/f").write_text("x")
    assert files.look(world.pins, path).path == b"/workspace/a/f"
    assert world.read(path) == b"x"


@pytest.mark.parametrize(
    "path", [b"..", b"../secret", b"/", b"/etc/passwd", b"a/../../secret", b"/workspace/../etc", b"/tmp/.."]
)
def test_a_path_that_leads_outside_is_invalid(world, path):
    (world.workspace / "a").mkdir()
    for act in (files.look, world.read):
        with pytest.raises(InvalidPath, match="outside"):
            act(*((world.pins, path) if act is files.look else (path,)))


@pytest.mark.parametrize(
    "target", ["../secret", "/etc/passwd", "/proc/self/root/etc/passwd", "/", "..", "a/../../secret"]
)
def test_a_link_that_leads_outside_is_invalid_for_every_use(world, target):
    (world.workspace / "a").mkdir()
    (world.workspace / "link").symlink_to(target)
    for path in (b"link", b"link/x", b"link/../x"):
        with pytest.raises(InvalidPath):
            world.read(path)
        with pytest.raises(InvalidPath):
            world.write(path)
    with pytest.raises(InvalidPath):
        world.list(b"link")
    assert (world.base / "secret").read_text() == "SECRET"


def test_a_plain_open_would_follow_a_link_to_the_outside(world):
    (world.workspace / "link").symlink_to("../secret")
    assert (world.workspace / "link").read_text() == "SECRET"


@pytest.mark.parametrize(
    "target", ["real", "/workspace/real", "./x/../real", "../workspace/real", "chain", "/tmp/back/real"]
)
def test_a_link_inside_is_followed_as_the_sandbox_would(world, target):
    (world.workspace / "real").write_text("yes")
    (world.workspace / "x").mkdir()
    (world.workspace / "chain").symlink_to("real")
    (world.tmp / "back").symlink_to("/workspace")
    (world.workspace / "link").symlink_to(target)
    assert world.read(b"link") == b"yes"
    assert files.look(world.pins, b"link").target == os.fsencode(target)


def test_dots_after_a_link_go_up_from_where_it_leads(world):
    (world.workspace / "a/b").mkdir(parents=True)
    (world.workspace / "a/f").write_text("right")
    (world.workspace / "f").write_text("wrong")
    (world.workspace / "link").symlink_to("a/b")
    assert world.read(b"link/../f") == b"right"


def test_a_loop_of_links_ends(world):
    (world.workspace / "one").symlink_to("two")
    (world.workspace / "two").symlink_to("one")
    assert error_of(world.read, b"one") == errno.ELOOP
    assert error_of(world.read, b"one/x") == errno.ELOOP


def test_forty_links_are_followed_and_one_more_is_not(world):
    (world.workspace / "0").write_text("end")
    for number in range(1, 42):
        (world.workspace / str(number)).symlink_to(str(number - 1))
    assert world.read(b"40") == b"end"
    assert error_of(world.read, b"41") == errno.ELOOP


def test_going_up_works_beyond_the_directories_that_are_held_open(world):
    depth = WINDOW * 3
    path = b"d/" * depth
    files.make_dir(world.pins, path)
    (world.workspace / "f").write_text("x")
    assert world.read(path + b"../" * depth + b"f") == b"x"
    assert files.look(world.pins, path + b"../" * (depth - 1)).path == b"/workspace/d"


def test_a_swap_of_a_directory_and_a_link_never_reads_the_secret(world):
    outside = world.base / "outside"
    outside.mkdir()
    (outside / "f").write_text("SECRET")
    (world.workspace / "dir").mkdir()
    (world.workspace / "dir/f").write_text("inside")
    (world.workspace / "link").symlink_to(outside)
    over = threading.Event()
    swapper = threading.Thread(target=swap_until, args=(world.workspace, over))
    swapper.start()
    try:
        seen = [attempt(world.read, b"dir/f") for _ in range(4000)]
        naive = read_until_secret(world.workspace / "dir/f")
    finally:
        over.set()
        swapper.join()
    assert b"SECRET" not in seen
    assert seen.count(b"inside") > 0
    # The control: the same attack on a plain open().
    assert naive


def swap_until(folder, over):
    while not over.is_set():
        os.rename(folder / "dir", folder / "x")
        os.rename(folder / "link", folder / "dir")
        os.rename(folder / "dir", folder / "link")
        os.rename(folder / "x", folder / "dir")


def attempt(read, path):
    try:
        return read(path)
    except (OSError, InvalidPath):
        return None


def read_until_secret(path):
    return any(attempt(lambda path: path.read_text(), path) == "SECRET" for _ in range(200_000))


def test_a_tmp_that_is_gone_is_said_so_and_a_new_one_is_found(world):
    (world.tmp / "f").write_text("x")
    gone = Roots(world.fds[0], lambda: None).pin()
    with pytest.raises(RootUnavailable):
        files.look(gone, b"/tmp/f")
    gone.close()
    assert files.look(world.pins, b"/tmp/f").size == 1


# Reading


def test_reading_gives_ranges_and_nothing_behind_the_end(world):
    (world.workspace / "f").write_bytes(b"0123456789")
    assert world.read(b"f", 3, 4) == b"3456"
    assert world.read(b"f", 8, 100) == b"89"
    assert world.read(b"f", 50, 1) == b""


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    folder = os.open(path.parent, os.O_DIRECTORY)
    try:
        # A socket's path has 108 bytes at most.
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


@pytest.mark.parametrize("make", [make_fifo, make_socket])
def test_what_is_no_regular_file_is_neither_read_nor_written(world, make):
    make(world.workspace / "odd")
    for act in (world.read, world.write):
        with pytest.raises(NotARegularFile):
            act(b"odd")
    assert files.look(world.pins, b"odd").kind in (stat.S_IFIFO, stat.S_IFSOCK)


def test_a_directory_is_neither_read_nor_written(world):
    assert error_of(world.read, b".") == errno.EISDIR
    for path in (b".", b"/tmp", b"new/"):
        assert error_of(world.write, path) == errno.EISDIR


def test_a_download_may_be_closed_while_somebody_reads(world):
    (world.workspace / "f").write_text("x")
    download = files.Download(world.pins, b"f")
    download.close()
    download.close()
    assert download.read(0, 10) == b""


# Writing


def test_a_new_file_gets_its_parents_and_modes_whatever_the_umask(world):
    old = os.umask(0o077)
    try:
        info = world.write(b"a/b/f", b"data")
    finally:
        os.umask(old)
    assert (info.path, info.size, info.mode) == (b"/workspace/a/b/f", 4, 0o644)
    assert stat.S_IMODE((world.workspace / "a/b").stat().st_mode) == 0o755
    assert (world.workspace / "a/b/f").read_bytes() == b"data"


def test_an_old_file_keeps_its_mode_unless_one_is_asked_for(world):
    (world.workspace / "f").touch()
    (world.workspace / "f").chmod(0o750)
    assert world.write(b"f").mode == 0o750
    assert world.write(b"f", mode=0o600).mode == 0o600


def test_a_file_is_the_old_one_until_the_new_one_is_whole(world):
    (world.workspace / "f").write_text("old")
    upload = files.Upload(world.pins, b"f", 0)
    upload.write(b"half")
    assert (world.workspace / "f").read_text() == "old"
    upload.discard()
    upload.discard()
    assert os.listdir(world.workspace) == ["f"]
    assert (world.workspace / "f").read_text() == "old"


def test_writing_through_a_link_writes_what_it_leads_to(world):
    (world.tmp / "deep").mkdir()
    (world.workspace / "link").symlink_to("/tmp/deep/f")
    assert world.write(b"link", b"x").path == b"/tmp/deep/f"
    assert (world.workspace / "link").is_symlink()
    assert (world.tmp / "deep/f").read_bytes() == b"x"


def test_a_failed_commit_leaves_nothing_behind(world):
    upload = files.Upload(world.pins, b"f", 0)
    (world.workspace / "f").mkdir()
    assert error_of(upload.commit) == errno.EISDIR
    upload.discard()
    assert os.listdir(world.workspace) == ["f"]


def test_a_directory_that_was_moved_away_during_an_upload_keeps_its_file(world):
    (world.workspace / "a").mkdir()
    upload = files.Upload(world.pins, b"a/f", 0)
    (world.workspace / "a").rename(world.workspace / "b")
    (world.workspace / "a").symlink_to("..")
    upload.write(b"x")
    upload.commit()
    assert (world.workspace / "b/f").read_bytes() == b"x"
    assert sorted(os.listdir(world.base)) == ["secret", "ws"]


# Directories


def test_making_a_directory_twice_is_no_error_and_a_file_in_its_place_is(world):
    assert files.make_dir(world.pins, b"a/b/")
    assert not files.make_dir(world.pins, b"a/b")
    assert not files.make_dir(world.pins, b"/tmp")
    (world.workspace / "f").touch()
    assert error_of(files.make_dir, world.pins, b"f") == errno.EEXIST
    assert error_of(files.make_dir, world.pins, b"f/x") == errno.ENOTDIR


def test_a_directory_is_listed_by_name_each_one_before_what_is_in_it(world):
    for name in ("b/two", "b/one", "a", "c/d/e"):
        (world.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (world.workspace / name).touch()
    assert world.list() == ([b"/workspace/a", b"/workspace/b", b"/workspace/c"], None)
    paths, _ = world.list(depth=2)
    assert paths == [b"/workspace/" + name for name in (b"a", b"b", b"b/one", b"b/two", b"c", b"c/d")]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_of_any_size_give_each_entry_once(world, limit):
    for number in range(5):
        (world.workspace / f"d{number}/sub").mkdir(parents=True)
        for name in ("x", "sub/y", "z"):
            (world.workspace / f"d{number}/{name}").touch()
    (world.workspace / "d1-").touch()
    whole, _ = world.list(depth=32)
    assert len(whole) == 26
    seen, after = [], ()
    while after is not None:
        page, after = world.list(depth=32, limit=limit, after=after)
        assert len(page) <= limit
        seen += page
    assert seen == whole


def test_the_next_page_goes_on_where_the_last_ended_although_entries_come_and_go(world):
    for name in "abcdef":
        (world.workspace / name).touch()
    _, after = world.list(limit=3)
    (world.workspace / "c").unlink()
    (world.workspace / "aa").touch()
    (world.workspace / "dd").touch()
    assert world.list(after=after)[0] == [b"/workspace/" + name for name in (b"d", b"dd", b"e", b"f")]


@pytest.mark.parametrize("after", [(b"..",), (b"", b""), (b"..", b"..", b"secret"), (b"\0",), (b"a", b"..", b"..")])
def test_a_forged_cursor_leads_nowhere(world, after):
    (world.workspace / "a").mkdir()
    (world.workspace / "z").touch()
    paths, _ = world.list(depth=5, after=after)
    assert set(paths) <= {b"/workspace/a", b"/workspace/z"}


def test_links_are_listed_with_their_text_and_not_followed(world):
    (world.workspace / "link").symlink_to("..")
    page = files.list_directory(world.pins, b".", depth=9, limit=10, after=())
    assert [(entry.path, entry.kind, entry.target) for entry in page.entries] == [
        (b"/workspace/link", stat.S_IFLNK, b"..")
    ]


def test_a_file_cannot_be_listed(world):
    (world.workspace / "f").touch()
    assert error_of(world.list, b"f") == errno.ENOTDIR


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


def test_a_tree_of_two_thousand_levels_is_removed(world):
    grow_chain(world.workspace, 2000)
    files.remove(world.pins, b"d", recursive=True)
    assert os.listdir(world.workspace) == []


def test_a_tree_of_two_thousand_levels_is_moved_to_the_other_root(world):
    grow_chain(world.workspace, 2000)
    files.move(world.pins, b"d", b"/tmp/d", overwrite=False)
    assert os.listdir(world.workspace) == []
    files.remove(world.pins, b"/tmp/d", recursive=True)
    assert os.listdir(world.tmp) == []


def test_a_wide_tree_is_removed(world):
    for outer in range(30):
        for inner in range(30):
            (world.workspace / f"t/{outer}/{inner}/x").mkdir(parents=True)
            (world.workspace / f"t/{outer}/{inner}/f").touch()
    files.remove(world.pins, b"t", recursive=True)
    assert os.listdir(world.workspace) == []


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
