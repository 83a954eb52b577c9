"""A session has the interpreter also where links of other folders lead to it."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import sandfleet_executor
from sandfleet_executor.effects.namespace.interpreter import links_to


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """tree/env/bin/python → ../../shims/python → tree/current/bin/python3, where current → versions/3."""
    for folder in ("env/bin", "shims", "versions/3/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "versions/3/bin/python3").touch()
    (tmp_path / "current").symlink_to("versions/3")
    (tmp_path / "shims/python").symlink_to(tmp_path / "current/bin/python3")
    (tmp_path / "env/bin/python").symlink_to("../../shims/python")
    return tmp_path


@pytest.mark.parametrize(
    ("mounted", "links"),
    [
        ((), {"env/bin/python": "../../shims/python", "shims/python": "{}/current/bin/python3", "current": "versions/3"}),
        (("env", "versions/3"), {"shims/python": "{}/current/bin/python3", "current": "versions/3"}),
        (("env", "current/lib"), {"shims/python": "{}/current/bin/python3"}),
        (("env", "shims", "current"), {}),
    ],
)  # fmt: skip
def test_links_outside_of_mounted_folders_are_found(
    tree: Path, mounted: tuple[str, ...], links: dict[str, str]
) -> None:
    wanted = {str(tree / path): target.format(tree) for path, target in links.items()}
    assert dict(links_to(f"{tree}/env/bin/python", [f"{tree}/{one}" for one in mounted])) == wanted


def test_a_circle_of_links_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert set(links_to(f"{tmp_path}/a", ())) == {(f"{tmp_path}/a", "b"), (f"{tmp_path}/b", "a")}


# In the environment: the arguments of bubblewrap for its own interpreter, run with a program that says its prefix.
WITHIN = """
import contextlib, json, subprocess, sys
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.effects.namespace import launch
config = ExecutorConfig.parse(json.loads(sys.argv[1]))
with contextlib.ExitStack() as opened:
    host = launch.this_host()
    command, fds = launch.bubblewrap(config, host, (), opened)
    program = [host.python, "-I", "-c", "import os, sys; print(sys.prefix, os.listdir(sys.argv[1]))", sys.argv[2]]
    sys.exit(subprocess.run([*command, "--", *program], pass_fds=fds).returncode)
"""


@pytest.mark.process
def test_an_environment_whose_python_is_a_link_in_another_folder_runs_in_a_session(tmp_path: Path) -> None:
    bin_folder = tmp_path / "home/.local/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to(os.path.realpath(sys.executable))
    (bin_folder / "secret").touch()
    (tmp_path / "workspace").mkdir()
    venv.EnvBuilder(symlinks=True).create(tmp_path / "env")
    own = tmp_path / "env/bin/python"
    for name in ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        own.with_name(name).unlink()
    own.symlink_to(bin_folder / "python")
    paths = [str(Path(sandfleet_executor.__file__).parents[1]), *(path for path in sys.path if path)]
    config = {
        "sandbox_id": "s",
        "sandbox_uid": "u",
        "socket": str(tmp_path / "x.sock"),
        "workspace": str(tmp_path / "workspace"),
        "private_dir": str(tmp_path),
        "keys_file": str(tmp_path / "keys.json"),
    }
    done = subprocess.run(
        [own, "-c", WITHIN, json.dumps(config), bin_folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{tmp_path / 'env'} ['python']\n", done.stderr
