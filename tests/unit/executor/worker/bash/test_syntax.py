"""Syntax errors of bash scripts."""

import os

import pytest
from sandfleet_executor.worker.bash import syntax


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "extended", "error"),
    [
        ("echo fine", False, ""),
        ("if true\nfi fi", False, "line 2: syntax error near unexpected token `fi'"),
        ("echo 'open", False, "line 1: unexpected EOF while looking for matching `''"),
        # A warning is no error, and does not hide one.
        ("cat <<END\ntext", False, ""),
        ("case x in +(y)) ;; esac", True, ""),
        ("case x in +(y)) ;; esac", False, "line 1: syntax error near unexpected token `('"),
        ("x" * 200_000 + " )", False, "line 1: syntax error near unexpected token `)'"),
    ],
)
def test_the_first_syntax_error_of_a_script_is_found(tmp_path, monkeypatch, code, extended, error):
    script = tmp_path / "a b"
    script.write_text(code)
    # Nothing is run to learn it.
    (tmp_path / "environment").write_text(f"touch {tmp_path}/ran")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "environment"))
    assert syntax.error_in(str(script), extended=extended) == error
    assert not (tmp_path / "ran").exists()


@pytest.mark.process
def test_a_check_that_takes_too_long_finds_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(syntax, "TIMEOUT", 0.1)
    os.mkfifo(tmp_path / "endless")
    assert syntax.error_in(str(tmp_path / "endless"), extended=False) == ""
