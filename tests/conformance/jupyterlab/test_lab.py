"""A notebook of JupyterLab's own page runs in a sandbox: headless Chromium clicks and types, as a person does.

SANDFLEET_SCREENSHOTS=DIR keeps pictures of what the page shows.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from sandfleet._fleets.embedded import Options, Process

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium (Debian: apt-get install chromium)", allow_module_level=True)
pytest.importorskip("jupyterlab", reason="there is no JupyterLab: run `make jupyterlab`")
sync_api = pytest.importorskip("playwright.sync_api", reason="there is no Playwright: run `make jupyterlab`")

PATIENCE = 60
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
# The cells of the notebook, each for the test that names it.
CELLS = {
    "print": "import os\nprint('in', os.getcwd(), os.environ['COLOUR'])",
    "frame": "import pandas as pd\ncities = pd.DataFrame({'city': ['Bonn', 'Kiel'], 'total': [40, 25]})\ncities",
    "plot": "import matplotlib.pyplot as plt\nplt.figure(figsize=(3, 1.2)); plt.plot([1, 4, 9]); plt.show()",
    "sql": "%%sql\nSELECT city, total * 2 AS doubled FROM cities",
    "error": "def half(number):\n    return number / 0\nhalf(1)",
    "input": "name = input('Who are you? ')\nprint('Hello', name)",
    "keep": "kept = 5\nopen('file', 'w').write('here')",
    "spin": "while True: pass",
    "kept": "kept",
    "file": "print(open('file').read())",
    "begun": "",
}


class Notebook:
    """The page of an open notebook."""

    def __init__(self, page):
        self.page = page

    def cell(self, name):
        return self.page.locator(".jp-CodeCell").nth(list(CELLS).index(name))

    def begin(self, name):
        """Presses the keys that run a cell."""
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")

    def end(self, name):
        """Waits for its number; its outputs."""
        number = self.cell(name).locator(".jp-InputPrompt")
        sync_api.expect(number).to_have_text(re.compile(r"\[\d+\]"), timeout=PATIENCE * 1000)
        return self.cell(name).locator(".jp-OutputArea-output")

    def run(self, name):
        self.begin(name)
        return self.end(name)

    def picture(self, name):
        if folder := os.environ.get("SANDFLEET_SCREENSHOTS"):
            self.page.screenshot(path=f"{folder}/{name}.png")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """JupyterLab on loopback, with a kernel of ours; the address of the notebook's page."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "notebooks").mkdir()
    cells = [
        {"cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "outputs": [], "source": code}
        for name, code in CELLS.items()
    ]
    kernel = {"name": "sandfleet-python", "display_name": "Python (sandbox)", "language": "python"}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
    (folder / "notebooks" / "try.ipynb").write_text(json.dumps(notebook))
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    # It asks at its first start whether it may look for news, above what is tested.
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    fleet = Process(Options(pool_size=1))
    own = {"HOME": str(folder), "JUPYTER_PATH": str(folder / "share" / "jupyter"), "SANDFLEET_ADDRESS": fleet.address}
    paths = os.pathsep.join(str(Path(each).resolve()) for each in os.environ["PYTHONPATH"].split(os.pathsep))
    envs = {**os.environ, **own, "PYTHONPATH": paths, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}
    words = ["-m", "sandfleet", "jupyter", "install", "--prefix", str(folder), "--env", "COLOUR=red"]
    subprocess.run([sys.executable, *words], check=True, env=envs, capture_output=True)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    words = [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=t", "--allow-root"]
    words += ["--ip=127.0.0.1", "--no-browser"]
    words += [f"--ServerApp.root_dir={folder / 'notebooks'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "jupyterlab", *words], env=envs, stdout=log, stderr=log)
    try:
        until = time.monotonic() + PATIENCE
        while not answers(f"http://127.0.0.1:{port}/api?token=t"):
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/try.ipynb?token=t&reset"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        fleet.stop()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def notebook(server):
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS.split())
        page = browser.new_page(viewport={"width": 1000, "height": 1100})
        page.goto(server)
        page.wait_for_selector(".jp-Notebook", timeout=PATIENCE * 1000)
        # Keys that come before the page has its kernel are lost.
        sync_api.expect(page.locator("#jp-main-statusbar")).to_contain_text("Idle", timeout=PATIENCE * 1000)
        yield Notebook(page)
        browser.close()


def test_a_cell_runs_in_the_sandbox(notebook):
    sync_api.expect(notebook.run("print")).to_have_text(["in /workspace red\n"])


def test_a_frame_is_a_table_and_a_plot_a_picture(notebook):
    assert notebook.run("frame").locator("table td").all_inner_texts() == ["Bonn", "40", "Kiel", "25"]
    shown = notebook.run("plot").locator("img")
    sync_api.expect(shown).to_have_count(1)
    assert shown.evaluate("each => each.naturalWidth > 100")
    assert notebook.run("sql").locator("table td").all_inner_texts() == ["Bonn", "80", "Kiel", "50"]
    notebook.picture("shown")


def test_an_error_is_its_traceback_once(notebook):
    (said,) = notebook.run("error").all_inner_texts()
    lines = said.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "ZeroDivisionError: division by zero"
    number = notebook.cell("error").locator(".jp-InputPrompt").inner_text().strip("[]:")
    assert f'File "<cell {number}>", line 2, in half' in said


def test_input_is_typed_below_the_cell(notebook):
    notebook.begin("input")
    box = notebook.cell("input").locator(".jp-Stdin-input")
    box.wait_for(timeout=PATIENCE * 1000)
    notebook.picture("input")
    box.fill("Ann é")
    box.press("Enter")
    notebook.end("input")
    sync_api.expect(notebook.cell("input").locator(".jp-OutputArea")).to_contain_text("Hello Ann é")


def test_an_interrupt_keeps_the_variables_and_a_restart_the_files(notebook):
    notebook.run("keep")
    notebook.begin("spin")
    sync_api.expect(notebook.cell("spin").locator(".jp-InputPrompt")).to_have_text("[*]:")
    # The key of the command "Interrupt Kernel", outside of an editor. A cell that has not begun cannot hear it.
    status = notebook.page.locator("#jp-main-statusbar")
    sync_api.expect(status).to_contain_text("Busy", timeout=PATIENCE * 1000)
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.type("ii")
    assert "KeyboardInterrupt" in notebook.end("spin").all_inner_texts()[0]
    sync_api.expect(notebook.run("kept").locator("pre")).to_have_text(["5"])
    notebook.picture("interrupted")
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.type("00")
    notebook.page.locator(".jp-Dialog .jp-mod-warn, .jp-Dialog .jp-mod-accept").last.click()
    sync_api.expect(notebook.run("file").locator("pre")).to_have_text(["here"])
    # The new kernel counts from 1.
    sync_api.expect(notebook.cell("file").locator(".jp-InputPrompt")).to_have_text("[1]:")
    sync_api.expect(notebook.run("kept")).to_contain_text(["NameError: name 'kept' is not defined"])
    notebook.picture("restarted")


def test_code_is_completed_and_described_while_it_is_typed(notebook):
    editor = notebook.cell("begun").locator(".cm-content")
    notebook.run("print")
    editor.click()
    notebook.page.keyboard.type("os.getcw")
    notebook.page.keyboard.press("Tab")
    found = notebook.page.locator(".jp-Completer-item")
    sync_api.expect(found.first).to_contain_text("getcwd", timeout=PATIENCE * 1000)
    notebook.picture("completed")
    notebook.page.keyboard.press("Enter")
    sync_api.expect(editor).to_contain_text("os.getcwd")
    notebook.page.keyboard.press("Shift+Tab")
    tooltip = notebook.page.locator(".jp-Tooltip")
    sync_api.expect(tooltip).to_contain_text("current working directory", timeout=PATIENCE * 1000)
    notebook.picture("described")
