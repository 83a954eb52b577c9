"""`sandfleet cp`, and files without `await`, with a real executor."""

import json
import secrets
import tempfile
import threading
from pathlib import Path

import pytest
from sandfleet import FileEventType, Fleet, Sandbox, cli
from sandfleet._fleets.embedded import Options, Process
from sandfleet.cli.cp import check_names
from sandfleet.errors import ProtocolError


@pytest.fixture(scope="module")
def address():
    # A short name: the paths of sockets below it are limited.
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        process = Process(Options(pool_size=1), state_dir=Path(base) / f"f-{secrets.token_hex(3)}")
        yield process.address
        process.stop()


@pytest.fixture(scope="module")
def sandbox(address):
    with Fleet.connect(address) as fleet, Sandbox.create(fleet=fleet) as made:
        yield made


@pytest.fixture
def cp(address, sandbox, monkeypatch, capsys, tmp_path):
    """Runs it in a folder of its own: exit code, output, errors. `S:` stands for the sandbox."""
    monkeypatch.setenv("SANDFLEET_ADDRESS", address)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = cli.main(["cp", *(word.replace("S:", f"{sandbox.sandbox_id}:") for word in words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_file_goes_there_and_back(cp, sandbox, tmp_path):
    (tmp_path / "f").write_text("content")
    assert cp("f", "S:a/b/c") == (0, "", "")
    assert cp("f", "S:") == (0, "", "")
    assert (sandbox.files.read("a/b/c"), sandbox.files.read("f")) == ("content", "content")
    assert cp("S:a/b/c", "./g:h") == (0, "", "")
    assert (tmp_path / "g:h").read_text() == "content"


def test_a_tree_goes_there_and_back_and_needs_its_flag(cp, sandbox, tmp_path):
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/f").write_text("x")
    code, _, said = cp("tree", "S:")
    assert (code, "use -r" in said) == (1, True)
    assert cp("-r", "tree", "S:new")[0] == 0
    assert cp("-r", "tree", "S:new")[0] == 0
    assert {info.path for info in sandbox.files.glob("**/f", "new")} == {
        "/workspace/new/sub/f",
        "/workspace/new/tree/sub/f",
    }
    assert cp("S:new", "back")[0] == 1
    code, out, _ = cp("-r", "--json", "S:new", "back")
    assert (code, json.loads(out)["files"], json.loads(out)["bytes"]) == (0, 2, 2)
    assert (tmp_path / "back/tree/sub/f").read_text() == "x"


def test_patterns_are_the_sandbox_s(cp, sandbox, tmp_path):
    for name in ("p/a.csv", "p/b.csv", "p/c.txt"):
        sandbox.files.write(name, name)
    (tmp_path / "into").mkdir()
    assert cp("S:p/*.csv", "into")[0] == 0
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == ["a.csv", "b.csv"]
    code, _, said = cp("S:p/*.csv", "one")
    assert (code, "is not a directory" in said) == (1, True)
    code, out, _ = cp("--json", "S:p/*.none", "one")
    assert (code, json.loads(out)["error"]["reason"]) == (1, "FileNotFound")


@pytest.mark.parametrize("name", ["p/.bashrc", "p/a.csv/..", "p/x.csv/", "..", "p/\0.csv", "p/a.csv.sh"])
def test_names_that_were_not_asked_for_are_not_taken_from_a_sandbox(name):
    """As scp once took what a server sent (CVE-2019-6111)."""
    with pytest.raises(ProtocolError):
        check_names(["p/a.csv", name], "*.csv")


@pytest.mark.parametrize("words", [("a", "b"), ("S:a", "S:b"), ("S:a", "b", "c")])
def test_exactly_one_side_is_a_sandbox(cp, words):
    assert cp(*words)[0] == 2


def test_skipped_files_are_named_and_are_a_failure(cp, sandbox, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/out").symlink_to("/etc/passwd")
    (tmp_path / "t/f").write_text("x")
    code, _, said = cp("-r", "t", "S:skips")
    assert (code, "skipped 'out'" in said) == (1, True)
    assert [info.name for info in sandbox.files.list("skips")] == ["f"]
    assert cp("absent", "S:skips")[0] == 1
    assert cp("S:absent", "here")[0] == 1


def test_progress_is_told_in_the_caller_s_thread(sandbox, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/f").write_bytes(bytes(3 << 20))
    threads, last = set(), []

    def tell(progress):
        threads.add(threading.current_thread())
        last[:] = [progress]

    assert sandbox.files.upload(tmp_path / "t", "told", on_progress=tell).bytes == 3 << 20
    assert sandbox.files.download("told", tmp_path / "u", on_progress=tell).bytes == 3 << 20
    assert sandbox.files.download("told/f", tmp_path / "v", on_progress=tell).bytes == 3 << 20
    assert (threads, last[0].files, last[0].bytes) == ({threading.current_thread()}, 1, 3 << 20)


def test_a_watch_is_iterated_without_await_and_ends_when_it_is_stopped(sandbox):
    sandbox.files.make_dir("watched")
    watch = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/f", "x")
    events = iter(watch)
    first = next(events)
    assert (first.type, first.path, watch.path) == (FileEventType.CREATED, "/workspace/watched/f", "/workspace/watched")
    stopping = threading.Timer(0.1, watch.stop)
    stopping.start()
    assert all(event.path for event in events)
    stopping.join()


def test_a_local_error_names_the_requested_file(cp, sandbox, tmp_path):
    sandbox.files.write("there/f", "x")
    (tmp_path / "f").write_text("x")
    assert cp("missing", "S:") == (1, "", "sandfleet: cannot read missing: No such file or directory\n")
    assert cp("-r", "S:there", "f") == (1, "", "sandfleet: cannot write f: File exists\n")
    assert cp("S:there/f", "no/x") == (1, "", "sandfleet: cannot write no/x: No such file or directory\n")
    code, out, err = cp("--json", "missing", "S:")
    assert (code, json.loads(out)["error"]["reason"], err) == (1, "ENOENT", "")
