"""Which languages a sandbox has."""

from sandfleet_executor.worker import languages
from sandfleet_executor.worker.languages import Language


def test_python_is_always_available():
    assert languages.available()[0] == "python"
    assert languages.missing("python") == ""


def test_a_language_without_its_program_is_missing_with_the_reason(monkeypatch):
    monkeypatch.setitem(languages.LANGUAGES, "bash", Language("bash", program="/is/not/there"))
    assert "bash" not in languages.available()
    assert languages.missing("bash") == "the sandbox has no /is/not/there"


def test_a_language_without_its_libraries_is_missing_with_the_reason(monkeypatch):
    monkeypatch.setitem(languages.LANGUAGES, "sql", Language("sql", libraries=("json", "no_such_library")))
    assert languages.missing("sql") == "the sandbox's Python has no no_such_library"


def test_an_unknown_language_is_missing_with_the_known_ones():
    assert languages.missing("cobol") == "languages are python, bash, javascript, sql"
