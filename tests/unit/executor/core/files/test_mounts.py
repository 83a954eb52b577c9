"""Which mounts may be asked for, and what they mean."""

import pytest
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.files import mounts
from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.core.files.paths import Root, in_workspace, join


@pytest.mark.parametrize(
    ("path", "folder", "source"),
    [
        ("/app", "", "/w/app"),
        ("/home/user", "", "/w/home/user"),
        ("/app", "project/src", "/w/project/src"),
        ("/app", ".", "/w"),
        ("/data", "Daten für später", "/w/Daten für später"),
    ],
)
def test_a_mount_is_a_folder_of_the_workspace_by_default_that_of_the_same_path(path, folder, source):
    (mount,) = mounts.check({path: folder})
    assert (mount.target, mount.source("/w"), mount.source("/w/")) == (path, source, source)


@pytest.mark.parametrize(
    ("tree", "names", "path", "below"),
    [
        (Root.WORKSPACE, (b"a",), b"/workspace/a", (b"a",)),
        (Root.TMP, (b"a",), b"/tmp/a", None),
        (Root.SYSTEM, (b"etc", b"a"), b"/etc/a", None),
        (Mount.of("/home/user", "me"), (b"a",), b"/home/user/a", (b"me", b"a")),
        (Mount.of("/app", "."), (), b"/app", ()),
    ],
)
def test_a_place_has_one_path_in_the_session_and_at_most_one_in_the_workspace(tree, names, path, below):
    assert (join(tree, names), in_workspace(tree, names)) == (path, below)


def test_mounts_overlap_neither_each_other_nor_what_the_session_needs():
    with pytest.raises(BadRequest, match="/a/b: it lies in /a,"):
        mounts.check({"/a/b": "", "/a-b": "", "/a": ""})
    for path in ("/srv", "/srv/venv", "/srv/venv/lib"):
        with pytest.raises(BadRequest, match="/srv/venv belongs to Python"):
            mounts.check({path: ""}, ["/srv/venv"])
    assert len(mounts.check({"/a": "x", "/a-b": "x", "/ab": "x/y", "/srv/venv2": ""}, ["/srv/venv"])) == 4
