"""The directories of a fleet on one machine."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sandfleet_operator.fleet.local.statedir import OwnerDir, StateDirError, base_dir, new_owner_dir, remove_tree, sweep
from support.fleet.builders import NOW


@pytest.mark.parametrize(
    ("environ", "user_id", "expected"),
    [
        ({"SANDFLEET_STATE": "/a", "XDG_RUNTIME_DIR": "/b", "HOME": "/c"}, 0, "/a"),
        ({"XDG_RUNTIME_DIR": "/b", "HOME": "/c"}, 0, "/b/sandfleet"),
        ({"HOME": "/c"}, 0, "/run/sandfleet"),
        ({"HOME": "/c"}, 1000, "/c/.local/state/sandfleet"),
    ],
)
def test_the_environment_says_where_the_base_is(environ, user_id, expected):
    assert base_dir(environ, user_id) == Path(expected)


def test_an_owners_directory_is_private_and_goes_with_it(tmp_path):
    path = new_owner_dir(tmp_path)
    with OwnerDir(path) as directory:
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())
        directory.workspace("w1").mkdir(parents=True)
    assert not path.exists()


def test_a_directory_that_others_could_enter_is_closed_to_them(tmp_path):
    path = tmp_path / "f-1"
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    with OwnerDir(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_directory_behind_a_symlink_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "f-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirError, match="cannot use the state directory"):
        OwnerDir(tmp_path / "f-1")


def test_a_directory_has_one_owner(tmp_path):
    with OwnerDir(tmp_path / "f-1"), pytest.raises(StateDirError, match="another fleet has it"):
        OwnerDir(tmp_path / "f-1")


@pytest.mark.process
def test_a_sweep_removes_what_dead_owners_left_and_nothing_of_the_living(tmp_path):
    dead = tmp_path / "f-dead"
    script = "import sys, os, pathlib; from sandfleet_operator.fleet.local.statedir import OwnerDir; OwnerDir(pathlib.Path(sys.argv[1])); os._exit(9)"
    subprocess.run([sys.executable, "-c", script, str(dead)], check=False)
    assert (dead / "lock").exists()
    (tmp_path / "f-old").mkdir()
    os.utime(tmp_path / "f-old", (NOW, NOW))
    (tmp_path / "f-new").mkdir()
    os.utime(tmp_path / "f-new", (NOW + 100, NOW + 100))
    (tmp_path / "other").mkdir()
    for name, file in (("f-letters", "dear.txt"), ("f-locksmith", "lock")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("another program's")
        os.utime(tmp_path / name, (NOW, NOW))
    with OwnerDir(tmp_path / "f-alive"):
        assert sweep(tmp_path, now=NOW + 120) == [dead, tmp_path / "f-old"]
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "f-alive",
            "f-letters",
            "f-locksmith",
            "f-new",
            "other",
        ]


def test_a_socket_path_that_the_system_cannot_bind_is_refused_early(tmp_path):
    path = tmp_path / ("x" * (90 - len(str(tmp_path)) if len(str(tmp_path)) < 89 else 1)) / "f-1"
    with OwnerDir(path) as directory, pytest.raises(StateDirError, match="107 are possible"):
        directory.socket("0123456789ab")


@pytest.mark.process
def test_a_directory_is_removed_whatever_user_code_left_in_it(tmp_path):
    tree = tmp_path / "workspace"
    tree.mkdir()
    (tree / "closed").mkdir()
    (tree / "closed" / "file").write_text("x")
    (tree / "closed").chmod(0)
    (tmp_path / "outside").write_text("stays")
    (tree / "link").symlink_to(tmp_path / "outside")
    here = Path.cwd()
    os.chdir(tree)
    try:
        for _ in range(1500):
            Path("deep").mkdir()
            os.chdir("deep")
    finally:
        os.chdir(here)
    remove_tree(tree)
    assert not tree.exists()
    assert (tmp_path / "outside").read_text() == "stays"
    remove_tree(tree)
