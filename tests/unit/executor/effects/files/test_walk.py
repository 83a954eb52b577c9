"""Folders that are made while another process exchanges what is there."""

import os

import pytest
from sandfleet_executor.effects.files.walk import make_directory


def test_a_link_that_takes_the_place_of_a_new_folder_changes_no_other_one(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "other").mkdir(mode=0o700)
    parent = os.open(tmp_path / "here", os.O_RDONLY)

    def made_and_exchanged(name, mode, dir_fd):
        os.symlink("../other", name, dir_fd=dir_fd)

    with monkeypatch.context() as patch, pytest.raises(NotADirectoryError):
        patch.setattr(os, "mkdir", made_and_exchanged)
        make_directory(b"new", parent)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o700
    # The control: its own folder gets the mode, whatever the umask.
    assert make_directory(b"mine", parent)
    assert (tmp_path / "here" / "mine").stat().st_mode & 0o777 == 0o755
    os.close(parent)
