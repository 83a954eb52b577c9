"""The session namespace as arguments of bubblewrap."""

import itertools

import pytest
from sandfleet_executor.core.session import bwrap
from sandfleet_executor.core.session.bwrap import Host

PREFIXES = ("/srv/venv", "/root/python")


def host(**change):
    values = {
        "is_root": True,
        "merged": ("bin", "lib"),
        "python": "/srv/venv/bin/python",
        "prefixes": PREFIXES,
        "own_packages": ("/srv/src/worker", "/srv/src/rules"),
        "own_network": True,
    }
    return Host(**{**values, **change})


def test_shims_of_installers_that_are_there_come_before_them():
    bare, found = (bwrap.environment(each, 2)["PATH"] for each in (host(), host(installers=("npm",))))
    assert "offline" not in bare
    folders = found.split(":")
    assert folders.index("/opt/sandfleet/_sandfleet_worker/shims/offline/npm") < folders.index("/srv/venv/bin")


def arguments(of=None, *, user_id=5000, tmp_bytes=1000, mounts=()):
    fds = range(10, 10 + len(bwrap.data_files(of or host())))
    return bwrap.arguments(
        of or host(),
        workspace="/state/w",
        mounts=mounts,
        tmp_bytes=tmp_bytes,
        user_id=user_id,
        data_fds=fds,
        info_fd=9,
    )


def pairs(found, option):
    """(source, target) of every mount of that kind."""
    return [tuple(found[at + 1 : at + 3]) for at, word in enumerate(found) if word == option]


def test_what_is_mounted_from_the_host_is_a_short_list_and_only_the_workspace_can_be_written():
    found = arguments()
    assert pairs(found, "--bind") == [("/state/w", "/workspace")]
    sources = {source for option in ("--ro-bind", "--ro-bind-try") for source, _ in pairs(found, option)}
    allowed = {
        "/usr",
        "/srv/src/worker",
        "/srv/src/rules",
        *PREFIXES,
        *(f"/{name}" for name in bwrap.MERGED),
        *(f"/etc/{name}" for name in bwrap.ETC),
    }
    assert sources <= allowed
    assert not sources & {"/", "/etc", "/root", "/home", "/var", "/run", "/proc", "/sys", "/dev"}


def test_the_root_and_the_devices_become_read_only_after_everything_is_mounted():
    found = arguments()
    last_mount = max(at for at, word in enumerate(found) if word in ("--bind", "--ro-bind", "--tmpfs", "--dev"))
    remounts = [at for at, word in enumerate(found) if word == "--remount-ro"]
    assert [found[at + 1] for at in remounts] == ["/dev", "/"]
    assert min(remounts) > last_mount


def test_folders_are_mounted_before_the_root_is_read_only_and_what_lies_above_them_is_made():
    found = arguments(mounts=[("/state/w/home", "/home/user")])
    assert pairs(found, "--bind") == [("/state/w", "/workspace"), ("/state/w/home", "/home/user")]
    assert found.index("/home/user") < found.index("--remount-ro")
    assert ("--dir", "/home") in itertools.pairwise(found)


@pytest.mark.parametrize(
    "option", ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--clearenv"]
)
@pytest.mark.parametrize("of", [host(), host(is_root=False), host(own_network=False)])
def test_these_hold_on_every_host(option, of):
    assert option in arguments(of)


@pytest.mark.parametrize(
    ("of", "user_id", "by_bwrap"), [(host(), 5000, False), (host(), None, True), (host(is_root=False), None, True)]
)
def test_the_user_namespace_is_made_by_bubblewrap_or_where_root_gives_an_own_uid_by_the_first_program(
    of, user_id, by_bwrap
):
    assert ("--unshare-user" in arguments(of, user_id=user_id)) is by_bwrap
    program = bwrap.program(of, user_id=user_id, tmp_inodes=16_384, start="pass")
    assert any(word.endswith("enter.py") for word in program) is not by_bwrap


@pytest.mark.parametrize("own", [True, False])
def test_the_network_is_an_own_one_or_the_pod_s(own):
    assert ("--unshare-net" in arguments(host(own_network=own))) is own


def test_the_resolver_is_there_only_where_there_is_a_network_to_ask():
    assert "/etc/resolv.conf" not in arguments()
    assert "/etc/resolv.conf" in arguments(host(resolver=True, own_network=False))


def test_files_in_memory_have_their_size_each():
    found = arguments(tmp_bytes=4096)
    sizes = [found[at : at + 4] for at, word in enumerate(found) if word == "--size"]
    assert sizes == [["--size", "4096", "--tmpfs", "/tmp"], ["--size", "4096", "--tmpfs", "/dev/shm"]]


def test_merged_folders_are_links_and_others_are_mounted():
    found = arguments(host(merged=("bin",)))
    assert ("usr/bin", "/bin") in pairs(found, "--symlink")
    assert ("/lib", "/lib") in pairs(found, "--ro-bind-try")


def test_made_files_come_from_descriptors_in_order_and_name_no_user_of_the_host():
    found = arguments()
    assert pairs(found, "--ro-bind-data") == [
        (str(10 + at), data.path) for at, data in enumerate(bwrap.data_files(host()))
    ]
    passwd = next(data.text for data in bwrap.data_files(host()) if data.path == "/etc/passwd")
    assert [line.split(":")[0] for line in passwd.splitlines()] == ["root", "sandbox", "nobody"]


def test_the_list_of_fonts_is_a_copy_in_a_folder_of_tmp_that_code_can_write():
    fonts = bwrap.Data("/tmp/.matplotlib/fontlist-v1.json", "{}")
    found = arguments(host(fonts=fonts))
    at = found.index("--file")
    assert found[at : at + 3] == ["--file", str(10 + len(bwrap.data_files(host()))), fonts.path]
    assert found[at - 5 : at] == ["1777", "--dir", "/tmp/.matplotlib", "--perms", "0666"]
    # The file system of /tmp would hide what was there before it.
    assert at > found.index("/tmp")


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["/a/b/c"], ["/a", "/a/b"]),
        (["/a/b", "/a/c/d"], ["/a", "/a/c"]),
        (["/usr/local/lib"], []),
        (["/a"], []),
        ([], []),
    ],
)
def test_folders_above_a_path_are_made_from_the_top_down_but_not_in_usr(paths, folders):
    assert bwrap.ancestors(paths) == folders


def test_the_interpreter_takes_no_path_from_user_code():
    program = bwrap.program(host(is_root=False), user_id=None, tmp_inodes=16_384, start="import x")
    assert program == ["/srv/venv/bin/python", "-s", "-P", "-c", "import x"]


def test_every_process_starts_with_a_fixed_seed_zone_locale_and_count_of_threads():
    found = bwrap.environment(host(), 1)
    assert (found["PYTHONHASHSEED"], found["TZ"], found["LC_ALL"]) == ("0", "UTC", "C.UTF-8")
    assert {name: value for name, value in found.items() if name.endswith("_THREADS")} == {
        f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
    }
    # What is installed into the workspace never comes before the system's; only the session's pip does.
    assert found["PATH"].split(":")[:2] == ["/opt/sandfleet/_sandfleet_worker/shims/bin", "/srv/venv/bin"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"A": "own", "PYTHONPATH": "/own"}),
        ({"A": "given", "B": ""}, {"A": "given", "B": "", "PYTHONPATH": "/own"}),
        ({"PYTHONPATH": "/given"}, {"A": "own", "PYTHONPATH": "/given:/own"}),
        ({"PYTHONPATH": ""}, {"A": "own", "PYTHONPATH": ""}),
    ],
)
def test_given_variables_come_over_the_session_s_and_a_given_path_comes_before_its_own(given, found):
    assert bwrap.with_own(given, {"A": "own", "PYTHONPATH": "/own"}) == found


def test_an_interpreter_below_tmp_is_mounted_after_tmp_and_its_folders_can_be_entered():
    found = arguments(host(prefixes=("/tmp/clone/venv",)))
    assert found.index("--tmpfs") < found.index("/tmp/clone/venv")
    assert found[found.index("/tmp/clone") - 3 : found.index("/tmp/clone") + 1] == [
        "--perms",
        "0755",
        "--dir",
        "/tmp/clone",
    ]
    # /tmp itself keeps the mode with which it is mounted.
    assert "/tmp" not in [found[at + 1] for at, word in enumerate(found) if word == "--dir"]
