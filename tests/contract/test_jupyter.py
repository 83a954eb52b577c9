"""A kernel of Jupyter whose code runs in a sandbox, as nbclient, JupyterLab and consoles speak to it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sandfleet import Fleet
from sandfleet._fleets.embedded import Options, Process

jupyter_client = pytest.importorskip("jupyter_client")
PATIENCE = 120


@pytest.fixture(scope="module")
def address():
    fleet = Process(Options(pool_size=1))
    yield fleet.address
    fleet.stop()


@pytest.fixture(scope="module")
def installed(address, tmp_path_factory):
    """The kernel, known to Jupyter below a folder of its own."""
    folder = tmp_path_factory.mktemp("jupyter")
    words = ["jupyter", "install", "--prefix", str(folder), "--env", "COLOUR=red"]
    said = subprocess.run([sys.executable, "-m", "sandfleet", *words], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("sandfleet-python: ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "share" / "jupyter"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patch.setenv("SANDFLEET_ADDRESS", address)
        yield folder


@pytest.fixture(scope="module")
def manager(installed):
    made = jupyter_client.KernelManager(kernel_name="sandfleet-python", transport="ipc")
    made.start_kernel()
    yield made
    if made.is_alive():
        made.shutdown_kernel(now=False)


@pytest.fixture(scope="module")
def client(manager):
    made = manager.blocking_client()
    made.start_channels()
    made.wait_for_ready(timeout=PATIENCE)
    yield made
    made.stop_channels()


@pytest.fixture
def run(client):
    """Runs a cell; its reply, and what was published in its order."""

    def run(code, **options):
        shown = []
        reply = client.execute_interactive(
            code, timeout=PATIENCE, allow_stdin=False, output_hook=shown.append, **options
        )
        told = [
            (each["msg_type"], each["content"]) for each in shown if each["msg_type"] not in ("status", "execute_input")
        ]
        return reply["content"], told

    return run


def streams(told, name="stdout"):
    return "".join(content["text"] for kind, content in told if kind == "stream" and content["name"] == name)


def test_code_runs_in_the_sandbox_and_what_it_shows_comes_as_messages(run):
    code = "import os, sys; print(os.environ['COLOUR'], os.getcwd()); print('err', file=sys.stderr); 6 * 7"
    reply, told = run(code)
    assert (reply["status"], streams(told), streams(told, "stderr")) == ("ok", "red /workspace\n", "err\n")
    kind, content = told[-1]
    assert (kind, content["data"]["text/plain"]) == ("execute_result", "42")
    assert content["execution_count"] == reply["execution_count"]


def test_displays_updates_and_clears_are_those_of_jupyter(run):
    code = "from IPython.display import *; d = display(HTML('<b>1</b>'), display_id='one'); d.update(JSON({'a': 1})); clear_output(wait=True)"
    _, told = run(code)
    assert [kind for kind, _ in told] == ["display_data", "update_display_data", "clear_output"]
    assert {content["transient"]["display_id"] for _, content in told[:2]} == {"one"}
    assert (told[0][1]["data"]["text/html"], told[1][1]["data"]["application/json"]) == ("<b>1</b>", {"a": 1})
    assert told[2][1] == {"wait": True}


def test_a_cell_that_fails_has_its_error_and_what_waits_behind_it_is_aborted(client, run):
    first = client.execute("1 / 0")
    behind = client.execute("open('never', 'w')")
    replies = {}
    while len(replies) < 2:
        said = client.get_shell_msg(timeout=PATIENCE)
        replies[said["parent_header"]["msg_id"]] = said["content"]
    assert (replies[first]["status"], replies[first]["ename"]) == ("error", "ZeroDivisionError")
    assert replies[behind]["status"] == "aborted"
    reply, told = run("import os; print(os.path.exists('never'))")
    assert (reply["status"], streams(told)) == ("ok", "False\n")


def test_sql_and_python_share_their_tables(run):
    pytest.importorskip("duckdb")
    run("import pandas as pd; df = pd.DataFrame({'a': [1, 2, 3]})")
    _, told = run("%%sql\nSELECT sum(a) AS total FROM df")
    # JupyterLab would show JSON as a tree, in place of the table.
    assert "<td>6</td>" in told[-1][1]["data"]["text/html"]
    assert "application/json" not in told[-1][1]["data"]
    assert streams(run("print(sql.last.total[0])")[1]) == "6\n"


def test_a_traceback_has_the_numbers_of_the_front_end(run):
    pytest.importorskip("duckdb")
    first, _ = run("def half(x): return x / 0")
    run("%%sql\nSELECT 1")
    reply, told = run("half(1)")
    assert reply["execution_count"] == first["execution_count"] + 2
    for content in (reply, told[-1][1]):
        places = [line.split(",")[0].strip() for line in content["traceback"] if "<cell" in line]
        assert places == [f'File "<cell {each["execution_count"]}>"' for each in (reply, first)]
        assert content["traceback"][-1] == "ZeroDivisionError: division by zero"


def test_a_front_end_is_asked_for_input(client, run):
    asked = []

    def answer(message):
        asked.append((message["content"]["prompt"], message["content"]["password"]))
        client.input("ann é")

    code = "import getpass; name = input('who? '); word = getpass.getpass('word: '); print(name, word)"
    reply = client.execute_interactive(
        code, timeout=PATIENCE, allow_stdin=True, stdin_hook=answer, output_hook=lambda _: None
    )
    assert (reply["content"]["status"], asked) == ("ok", [("who? ", False), ("word: ", True)])
    assert streams(run("print(name)")[1]) == "ann é\n"
    reply, _ = run("input('again? ')")
    assert (reply["status"], reply["ename"]) == ("error", "StdinNotAvailable")


def test_an_interrupt_ends_the_wait_for_input(manager, client, run):
    cell = client.execute("input('who? ')", allow_stdin=True)
    assert client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"] == "who? "
    manager.interrupt_kernel()
    while (reply := client.get_shell_msg(timeout=PATIENCE))["parent_header"].get("msg_id") != cell:
        pass
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    # What is typed too late is of no cell.
    client.input("late")
    assert streams(run("print(1)")[1]) == "1\n"


def test_an_interrupt_keeps_the_variables(manager, client, run):
    run("kept = 1")
    cell = client.execute("print('begun', flush=True)\nwhile True: pass")
    while (said := client.get_iopub_msg(timeout=PATIENCE))["msg_type"] != "stream":
        pass
    assert said["content"]["text"] == "begun\n"
    manager.interrupt_kernel()
    while (reply := client.get_shell_msg(timeout=PATIENCE))["parent_header"].get("msg_id") != cell:
        pass
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    assert streams(run("print(kept)")[1]) == "1\n"


def test_code_is_completed_and_described(client, run):
    run("own_name = 1")
    reply = client.complete("own_na", reply=True, timeout=PATIENCE)["content"]
    assert (reply["matches"], reply["cursor_start"], reply["cursor_end"]) == (["own_name"], 0, 6)
    reply = client.inspect("len", reply=True, timeout=PATIENCE)["content"]
    assert reply["found"]
    assert "Signature: len(obj, /)" in reply["data"]["text/plain"]


def test_help_is_for_the_pager_of_the_front_end(run):
    reply, told = run("zip?")
    (page,) = reply["payload"]
    assert (page["source"], told) == ("page", [])
    assert "zip" in page["data"]["text/plain"]


def test_consoles_are_told_whether_lines_are_a_whole_cell(client):
    said = {}
    for code in ("x = 1", "for i in range(3):", "x = = 1"):
        client.is_complete(code)
        said[code] = client.get_shell_msg(timeout=PATIENCE)["content"]["status"]
    assert list(said.values()) == ["complete", "incomplete", "invalid"]


def test_consoles_find_the_cells_before(client, run):
    number = run("1 + 41")[0]["execution_count"]
    run("silent_one = 1", silent=True)
    client.history(raw=True, output=True, hist_access_type="tail", n=1)
    assert client.get_shell_msg(timeout=PATIENCE)["content"]["history"] == [[0, number, ["1 + 41", "42"]]]
    client.history(raw=True, output=False, hist_access_type="search", pattern="1 ? 4*", n=5)
    assert client.get_shell_msg(timeout=PATIENCE)["content"]["history"] == [[0, number, "1 + 41"]]


def test_a_restart_keeps_the_files_and_drops_the_variables(manager, client, run, address):
    run("open('file', 'w').write('here'); kept = 1")
    with Fleet.connect(address) as fleet:
        before = [each.sandbox_id for each in fleet.list() if each.state == "claimed"]
        manager.restart_kernel()
        client.wait_for_ready(timeout=PATIENCE)
        _, told = run("print(open('file').read(), globals().get('kept'))")
        assert streams(told) == "here None\n"
        assert [each.sandbox_id for each in fleet.list() if each.state == "claimed"] == before


def test_a_shutdown_ends_the_sandbox_and_leaves_no_file(manager, client, run, address, tmp_path_factory):
    assert run("1")[0]["status"] == "ok"
    file = manager.connection_file
    manager.shutdown_kernel(now=False)
    with Fleet.connect(address) as fleet:
        until = time.monotonic() + PATIENCE
        while [each for each in fleet.list() if each.state == "claimed"]:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert not Path(f"{file}.sandbox").exists()


def test_a_folder_beside_the_notebook_is_copied_in(installed, monkeypatch, tmp_path):
    words = ["jupyter", "install", "--prefix", str(installed), "--name", "with-folder", "--folder", "."]
    subprocess.run([sys.executable, "-m", "sandfleet", *words], capture_output=True, check=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("a,b\n")
    made = jupyter_client.KernelManager(kernel_name="with-folder")
    made.start_kernel(cwd=str(tmp_path))
    client = made.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)
        shown = []
        client.execute_interactive("print(open('data/rows.csv').read())", timeout=PATIENCE, output_hook=shown.append)
        assert streams([(each["msg_type"], each["content"]) for each in shown]) == "a,b\n\n"
    finally:
        client.stop_channels()
        made.shutdown_kernel(now=False)


def test_a_fleet_that_does_not_answer_is_an_error_of_the_cell(installed, monkeypatch):
    monkeypatch.setenv("SANDFLEET_ADDRESS", "unix:/nowhere/fleet.sock")
    manager, client = jupyter_client.manager.start_new_kernel(
        kernel_name="sandfleet-python", startup_timeout=PATIENCE, extra_arguments=["--max-wait", "1"]
    )
    try:
        reply = client.execute_interactive("1", timeout=PATIENCE, output_hook=lambda _: None)["content"]
        assert reply["status"] == "error"
        assert "cannot" in reply["evalue"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_an_installed_kernel_is_removed_and_no_other(installed):
    def said(*words):
        return subprocess.run(
            [sys.executable, "-m", "sandfleet", "jupyter", *words], capture_output=True, text=True, check=False
        )

    place = installed / "share" / "jupyter" / "kernels" / "other"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps({"argv": ["python", "-m", "ipykernel"]}))
    assert said("remove", "--prefix", str(installed), "--name", "other").returncode == 1
    assert (place / "kernel.json").exists()
    assert said("install", "--prefix", str(installed), "--name", "Bad Name").returncode == 2
    assert said("install", "--prefix", str(installed), "--name", "mine", "--language", "sql").returncode == 0
    spec = json.loads((installed / "share" / "jupyter" / "kernels" / "mine" / "kernel.json").read_text())
    assert (spec["display_name"], spec["language"], spec["interrupt_mode"]) == ("SQL (sandbox)", "sql", "message")
    assert said("remove", "--prefix", str(installed), "--name", "mine").returncode == 0
    assert not (installed / "share" / "jupyter" / "kernels" / "mine").exists()
