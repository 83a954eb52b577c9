"""A session on a foreign root: what it is started with."""

import json

import pytest
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.core.session import bwrap, foreign
from sandfleet_executor.core.session.foreign import Rootfs

ROOTFS = {"path": "/srv/image", "runtime_dir": "/srv/cache"}
CONFIG = {
    "sandbox_id": "a",
    "sandbox_uid": "b",
    "workspace": "/w",
    "private_dir": "/p",
    "keys_file": "/k",
    "socket": "/s",
}
MOUNTS = (("/srv/cache/runtime-1", "/opt/sandfleet"), ("/srv/venv/packages", "/opt/sandfleet/packages"))
FOREIGN = bwrap.Foreign("/p/root/root", MOUNTS, 1234)
# Of a pod: the container has the image, and the executor stands beside it.
IN_POD = bwrap.Foreign("/", (), 0, covered=("/opt/sandfleet/pod",), many_users=True)


def found(root=FOREIGN, **change):
    host = bwrap.Host(
        is_root=False,
        merged=("bin",),
        python="/opt/sandfleet/bin/python3.11",
        prefixes=(),
        own_packages=("/srv/worker", "/srv/rules"),
        own_network=True,
        foreign=root,
    )
    given = {"workspace": "/w", "tmp_bytes": 1, "user_id": None, "data_fds": [10], "info_fd": 9}
    return bwrap.arguments(host, **given | change)


def pairs(words, option):
    return [tuple(words[at + 1 : at + 3]) for at, word in enumerate(words) if word == option]


def test_the_machine_lends_nothing_but_the_runtime_the_packages_and_the_worker():
    words = found()
    assert pairs(words, "--bind") == [("/p/root/root", "/"), ("/w", "/workspace")]
    assert pairs(words, "--ro-bind") == [
        ("/srv/cache/runtime-1", "/opt/sandfleet"),
        ("/srv/venv/packages", "/opt/sandfleet/packages"),
        ("/srv/worker", "/opt/sandfleet/_sandfleet_worker"),
        ("/srv/rules", "/opt/sandfleet/sandfleet_rules"),
    ]
    assert "--ro-bind-try" not in words
    # Every mount is above the root's, which would cover it otherwise.
    assert words.index("/p/root/root") < min(words.index(word) for word in ("--proc", "--tmpfs", "--ro-bind"))


def test_code_is_the_user_of_the_image_and_may_change_the_root():
    words = found()
    assert words[words.index("--uid") + 1] == words[words.index("--gid") + 1] == "1234"
    assert [words[at + 1] for at, word in enumerate(words) if word == "--remount-ro"] == ["/dev"]


def test_in_a_pod_the_session_has_the_container_s_root_without_what_the_executor_has_there():
    words = found(IN_POD)
    at = words.index("/opt/sandfleet/pod")
    assert words[at - 4 : at + 3] == [
        "--bind",
        "/",
        "/",
        "--tmpfs",
        "/opt/sandfleet/pod",
        "--remount-ro",
        "/opt/sandfleet/pod",
    ]
    # Its root is that of a user namespace made before, and may mount nothing.
    assert "--unshare-user" not in words
    kept = {words[place + 1] for place, word in enumerate(words) if word == "--cap-add"}
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert {"CAP_CHOWN", "CAP_SETUID"} <= kept
    assert not kept & {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_MKNOD", "CAP_NET_RAW", "CAP_NET_ADMIN"}


def test_the_configuration_of_a_pod_takes_user_and_variables_of_its_container():
    text = json.dumps({**CONFIG, "rootfs": {"path": "/"}, "network": "pod"})
    around = {"SANDFLEET_EXECUTOR_CONFIG": text, "HOME": "/home/app", "KUBERNETES_PORT": "1", "HOSTNAME": "pod"}
    rootfs = ExecutorConfig.from_environment(around, 1234).rootfs
    assert rootfs is not None
    assert (rootfs.user, dict(rootfs.envs), rootfs.of_container) == (1234, {"HOME": "/home/app"}, True)
    with pytest.raises(ConfigError, match="of the template to InImage"):
        ExecutorConfig.from_environment({**around, "SANDFLEET_EXECUTOR_IMAGE": "1"}, 1234)


def test_variables_of_the_image_count_before_those_of_each_session():
    rootfs = Rootfs(**ROOTFS, user=7, envs={"LANG": "de_DE", "PATH": "/app"})
    made = foreign.environment(rootfs, {"LANG": "C.UTF-8", "TZ": "UTC"})
    assert (made["LANG"], made["PATH"], made["TZ"], made["HOME"]) == ("de_DE", "/app", "UTC", "/workspace")
    assert foreign.environment(Rootfs(**ROOTFS), {})["HOME"] == "/root"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "GLIBC_TUNABLES"])
def test_the_first_process_gets_nothing_that_its_loader_or_interpreter_reads(name):
    assert foreign.of_first_process({name: "/image", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "srv"},
        {"path": 7},
        {"runtime_dir": ""},
        {"user": -1},
        {"user": 65_536},
        {"user": True},
        {"size_limit": 0},
    ],
)
def test_a_wrong_root_is_refused(wrong):
    with pytest.raises(ConfigError, match=f"cannot take rootfs {next(iter(wrong))}="):
        ExecutorConfig.parse(CONFIG | {"rootfs": ROOTFS | wrong})


def test_a_root_needs_a_namespace():
    assert ExecutorConfig.parse(CONFIG | {"rootfs": ROOTFS}).rootfs == Rootfs(**ROOTFS)
    assert ExecutorConfig.parse(CONFIG | {"rootfs": None}).rootfs is None
    with pytest.raises(ConfigError, match="no namespace of its own"):
        ExecutorConfig.parse(CONFIG | {"rootfs": ROOTFS, "isolation": "none"})
    with pytest.raises(ConfigError, match="elsewhere never the machine's"):
        ExecutorConfig.parse(CONFIG | {"rootfs": {"path": "/"}})
    with pytest.raises(ConfigError, match="the container's own root"):
        ExecutorConfig.parse(CONFIG | {"rootfs": ROOTFS, "network": "pod"})
    with pytest.raises(ConfigError, match="unknown rootfs mode"):
        ExecutorConfig.parse(CONFIG | {"rootfs": ROOTFS | {"mode": "rw"}})
