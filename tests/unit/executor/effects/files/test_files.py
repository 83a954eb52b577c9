"""Files on two real directory trees: resolution, races, reading, writing and listing."""

# What is tested works on names and descriptors, and so do the checks.
# ruff: noqa: PTH104, PTH208

import errno
import os
import socket
import stat
import threading

import pytest
from sandfleet_executor.core.files.paths import InvalidPath
from sandfleet_executor.effects.files import files
from sandfleet_executor.effects.files.trees import NotARegularFile
from sandfleet_executor.effects.files.walk import WINDOW, Roots, RootUnavailable
from support.executor.file_trees import attempt, error_of, world_fixture

# pytest finds a fixture by its name in the module.
world = world_fixture


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


@pytest.mark.process
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


def test_a_download_may_be_closed_during_a_read(world):
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
