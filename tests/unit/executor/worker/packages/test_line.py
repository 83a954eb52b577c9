"""Command lines of pip, read."""

import pytest
from sandfleet_executor.worker.packages import line


@pytest.mark.parametrize(
    ("arguments", "command", "words", "options"),
    [
        (["install", "x"], "install", ["x"], {}),
        (["-q", "install", "x", "y>2"], "install", ["x", "y>2"], {"--quiet": []}),
        (["--log", "install", "install", "x"], "install", ["x"], {"--log": ["install"]}),
        (
            ["install", "-rreq.txt", "-r", "b.txt", "-qU"],
            "install",
            [],
            {"--requirement": ["req.txt", "b.txt"], "--quiet": [], "--upgrade": []},
        ),
        (
            ["install", "--index-url=http://i/", "-i", "http://j/", "x"],
            "install",
            ["x"],
            {"--index-url": ["http://i/", "http://j/"]},
        ),
        (["download", "-d", "wheels", "x"], "download", ["x"], {"--dest": ["wheels"]}),
        (["uninstall", "-y", "install"], "uninstall", ["install"], {"-y": []}),
        (["install", "-t"], "install", [], {"--target": []}),
        (["--version"], "", [], {"--version": []}),
        (["frobnicate", "x"], "", ["frobnicate", "x"], {}),
        ([], "", [], {}),
    ],
)
def test_a_line_is_read_as_pip_reads_it(arguments, command, words, options):
    found = line.read(arguments)
    assert (found.command, list(found.words), dict(found.options)) == (command, words, options)


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("pandas", False),
        ("pandas[excel]>=2,<3", False),
        ("own.package", False),
        ("own-1.0-py3-none-any.whl", True),
        ("own-1.0-py3-none-any.whl[all]", True),
        ("own-1.0.tar.gz", True),
        (".", True),
        ("./own", True),
        ("/workspace/own", True),
        ("folder/own", True),
        ("file:///workspace/own.whl", True),
        ("own @ file:///workspace/own.whl", True),
        ("https://example.com/own.whl", False),
        ("git+https://example.com/own", False),
        ("own @ https://example.com/own.whl", False),
    ],
)
def test_a_requirement_is_a_file_of_the_session_or_not(word, file):
    assert line.is_file(word) is file


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["install", "a", "b>1"], ["a", "b>1"]),
        (["install", "-U", "a", "-r", "plain.txt"], ["a", "c>=1", "d"]),
        (["install", "-r", "options.txt"], None),
        (["install", "./a"], None),
        (["install", "--force-reinstall", "a"], None),
        (["install", "--target", "here", "a"], None),
        (["install", "-e", "."], None),
    ],
)
def test_what_installed_packages_may_meet(arguments, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("# comment\n\nc>=1  # why\nd\n")
    (tmp_path / "options.txt").write_text("--pre\nc\n")
    assert line.read(arguments).plain() == wanted


@pytest.mark.parametrize(
    ("arguments", "placed"),
    [
        (["install", "x"], ["install", "--target", "T", "--upgrade", "x"]),
        (["-v", "install", "--user", "x"], ["-v", "install", "--target", "T", "--upgrade", "x"]),
    ],
)
def test_an_installation_goes_into_the_session_s_folder(arguments, placed):
    asked = line.read(arguments)
    assert asked.into_session
    assert line.with_target(arguments, asked, "T") == placed


@pytest.mark.parametrize("option", ["-t", "--target", "--prefix", "--root"])
def test_an_installation_with_a_place_of_its_own_does_not(option):
    assert not line.read(["install", option, "there", "x"]).into_session


def test_the_indexes_are_those_of_the_line_then_those_of_the_variables_then_pypi():
    variables = {"PIP_INDEX_URL": "http://a/", "PIP_EXTRA_INDEX_URL": "http://b/ http://c/"}
    assert line.read(["install", "x"]).indexes({}) == [line.PYPI]
    assert line.read(["install", "x"]).indexes(variables) == ["http://a/", "http://b/", "http://c/"]
    assert line.read(["install", "-i", "http://d/", "x"]).indexes(variables) == ["http://d/", "http://b/", "http://c/"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["install", "requests", "x>2"],
            """cannot install requests 'x>2': there is no network; put wheels into the workspace from outside \
(sandbox.files.upload("wheels", "wheels")), then run \
pip install --no-index --find-links /workspace/wheels requests 'x>2'""",
        ),
        (["download", *"abcdefg"], "cannot download a b c d e and 2 more: there is no network"),
        (["index", "versions", "x"], "cannot look up versions x: there is no network"),
    ],
)
def test_a_refusal_is_one_sentence(arguments, sentence):
    assert line.refusal(line.read(arguments), "there is no network") == sentence
