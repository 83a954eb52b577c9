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
    known = "python, bash, javascript, sql, typescript, and jupyter-NAME for a Jupyter kernel of the sandbox"
    assert languages.missing("cobol") == f"languages are {known}"


def test_what_a_language_declares_and_what_it_says_of_itself_agree():
    for language in languages.LANGUAGES.values():
        assert set(language.differs) <= set(languages.TOPICS)
        assert {topic for topic, name in languages.DECLARED.items() if not getattr(language, name)} == (
            set(language.differs) & set(languages.DECLARED)
        )
