"""Kernelspecs: where they are looked for, and what is taken for one."""

import json
import sys

import pytest
from sandfleet_executor.worker.base import kernels

SPEC = {"argv": ["python3", "-m", "k", "-f", "{connection_file}", "{resource_dir}/x"], "display_name": "K"}


def written(folder, name, text):
    (folder / name).mkdir(parents=True)
    (folder / name / "kernel.json").write_text(text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.delenv("HOME", raising=False)
    return tmp_path / "kernels"


def test_a_kernelspec_is_a_program_with_its_places_filled_in(folder, monkeypatch):
    monkeypatch.setenv("COLOUR", "red")
    spec = SPEC | {"env": {"A": "${COLOUR} ${NONE}", "bad name": "x"}, "interrupt_mode": "message"}
    written(folder, "own", json.dumps(spec))
    found = kernels.find("own")
    assert found.command("/c.json") == [sys.executable, "-c", kernels.MODULE, "k", "-f", "/c.json", f"{folder}/own/x"]
    assert (found.display_name, found.envs, found.takes_messages) == ("K", {"A": "red ${NONE}"}, True)
    assert "own" in kernels.names()


def test_a_kernelspec_that_code_can_write_takes_the_name_of_none_of_the_image(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "image"))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "w"))
    monkeypatch.setenv("SANDFLEET_PACKAGES", str(tmp_path / "p"))
    places = {"w": "w/.local/share/jupyter/kernels", "p": "p/share/jupyter/kernels"}
    for place in places.values():
        written(tmp_path / place, "taken-by-a-test", json.dumps(SPEC))
    # Control: alone it is found.
    assert kernels.find("taken-by-a-test").folder == str(tmp_path / places["p"] / "taken-by-a-test")
    image = tmp_path / "image/share/jupyter/kernels"
    written(image, "taken-by-a-test", json.dumps(SPEC))
    assert kernels.find("taken-by-a-test").folder == str(image / "taken-by-a-test")


@pytest.mark.parametrize(
    ("argv", "more"),
    [
        (["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"], ["--IPCompleter.use_jedi=False"]),
        (["python3", "-m", "bash_kernel", "-f", "{connection_file}"], []),
    ],
)
def test_a_kernel_of_ipython_is_told_to_complete_without_jedi(folder, argv, more):
    written(folder, "own", json.dumps(SPEC | {"argv": argv}))
    found = kernels.find("own")
    run = ["-c", kernels.MODULE, argv[2], "-f", "/c.json"]
    assert found.command("/c.json") == [sys.executable, *run, *more]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"argv": []}',
        '{"argv": "ls"}',
        '{"argv": [1]}',
        '{"argv": ["a\\u0000b"]}',
        "[" * 99_999,
        " " * (1 << 17),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_kernelspec_is_no_kernel(folder, text):
    written(folder, "bad", text)
    assert kernels.find("bad") is None
    assert "bad" not in kernels.names()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a\n", "a" * 41])
def test_a_name_leads_nowhere_else(name):
    assert kernels.find(name) is None
