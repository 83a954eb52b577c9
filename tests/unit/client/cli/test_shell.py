"""What `sandfleet shell` does with the end of its input."""

import os
from pathlib import Path

import pytest
from sandfleet.cli import shell


@pytest.mark.timeout(20)
def test_the_end_of_piped_input_is_said_until_the_shell_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote shell that has not set up its terminal yet loses what comes before."""
    monkeypatch.setattr(shell, "_END_AGAIN", 0.01)
    stop, stopping = os.pipe()
    said: list[bytes] = []

    def type_in(data: bytes) -> None:
        said.append(data)
        if len(said) == 3:
            os.close(stopping)

    with Path(os.devnull).open("rb") as empty:
        shell._read(empty.fileno(), stop, type_in, pytest.fail)
    assert said == [b"\x04"] * 3
