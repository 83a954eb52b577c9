"""Which languages a sandbox has, and how an exit code is said."""

import pytest
from sandfleet_executor.worker import bash, languages
from sandfleet_executor.worker.languages import Language


def test_python_is_always_there():
    assert languages.available()[0] == "python"
    assert languages.missing("python") == ""


def test_a_language_without_its_program_is_not_there_and_it_is_said(monkeypatch):
    monkeypatch.setitem(languages.LANGUAGES, "bash", Language("bash", program="/is/not/there"))
    assert "bash" not in languages.available()
    assert languages.missing("bash") == "the sandbox has no /is/not/there"


def test_a_language_that_nobody_knows_is_not_there():
    assert languages.missing("cobol") == "languages are python, bash"


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "exit code 1"), (128, "exit code 128"), (139, "exit code 139 (SIGSEGV)"), (255, "exit code 255")],
)
def test_an_exit_code_names_the_signal_that_it_stands_for(code, words):
    assert bash.value_of(code) == words
