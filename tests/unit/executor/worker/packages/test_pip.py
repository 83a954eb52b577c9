"""The session's pip as a program."""

import importlib.util

import pytest
from sandfleet_executor.worker.packages import pip


def test_a_python_without_pip_and_ensurepip_is_named(monkeypatch, capsys):
    monkeypatch.setattr(pip.PathFinder, "find_spec", lambda *_: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    assert pip.main(["list"]) == pip.NO_PIP
    assert "has no pip and no ensurepip" in capsys.readouterr().err


def test_arguments_that_cannot_be_read_are_refused_before_anything_runs():
    with pytest.raises(pip.CannotInstall, match="the arguments cannot be read"):
        pip.run("install 'x", lambda *_: pytest.fail("started"))
