"""One trace from the agent's step to the process that ran its code, exported by two environment variables.

The agent is a program of its own with a fleet of its own; both append to one file, or export to a collector.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating import attributes as published
from sandfleet.cli import main
from sandfleet.observe.spans.store import read
from sandfleet.observe.spans.tree import gaps, trees
from support.fleet.process import a_fleet
from support.otlp import collecting
from support.ports import free_port
from support.tools import tool

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
CANARY = "canary-3b9c"
AGENT = """
import asyncio, os
from sandfleet import AsyncSandbox, tool
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode, RunCommand

@tool
def look_up(name: str) -> int:
    "A number."
    return 1

MOVES = [
    RunCode("secret = 'CANARY'\\nopen('CANARY.txt', 'w').write(secret)\\nprint(secret)", intent="CANARY"),
    RunCode("class CANARY_error(Exception): pass\\nraise CANARY_error(secret)"),
    RunCode("import os, tools, subprocess\\nx = tools.look_up('CANARY')\\n"
            "subprocess.run('echo parent $TRACEPARENT', shell=True)"),
    RunCommand("echo CANARY >&2; exit 3"),
    RunCode("import os; os._exit(1)"),
    # No variable of an earlier cell: a busy machine may have copied none of the last ones.
    RunCode("20 + 1"),
]

async def policy(conversation):
    done = len(conversation.steps)
    return MOVES[done] if done < len(MOVES) else FinalAnswer(21, conversation.steps[-1].evidence.execution_id)

def stepped(step):
    if step.evidence is not None and step.number == 3:
        print(step.observation)

async def main():
    async with AsyncSandbox.create(contract="brokered") as sandbox:
        agent = CodeActAgent(policy, sandbox, tools=[look_up], max_failures=9, name="tester", on_step=stepped)
        run = await agent.run("find CANARY")
        print("end", run.end.value, sandbox.sandbox_id)

asyncio.run(main())
""".replace("CANARY", CANARY.replace("-", "_"))


def over_otlp(endpoint):
    return played(OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)


def played(**asked):
    """What the agent printed."""
    done = subprocess.run(
        [sys.executable, "-c", AGENT], env=os.environ | asked, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file of spans, what the agent printed, and the sandbox."""
    path = tmp_path_factory.mktemp("traces") / "t.jsonl"
    said, complained = played(SANDFLEET_TRACES=str(path))
    assert not complained
    return path, said, re.search(r"end answered (\S+)", said)[1]


@pytest.fixture(scope="module")
def spans(exported):
    path, _, sandbox = exported
    return read(path, sandbox)


def names(nodes):
    return [node.span.name for node in nodes]


def test_the_whole_way_is_one_tree_and_each_parent_covers_its_children(spans):
    found = trees(spans)
    (agent,) = [tree for tree in found if tree.span.name == "invoke_agent tester"]
    steps = [node for node in agent.children if node.span.name.startswith("step ")]
    assert names(steps) == [*["step run_code"] * 3, "step run_command", *["step run_code"] * 2, "step final_answer"]
    tool = next(node for node in steps[2].children if node.span.name == "execute_tool run_code")
    cell = next(node for node in tool.children if node.span.name == "execute_cell")
    assert "run" in names(cell.children)
    # The host's tool is a call of the execution, and lies in this process.
    hosted = next(node for node in tool.children if node.span.name == "execute_tool look_up")
    assert hosted.span.service == tool.span.service == "sandfleet"
    assert cell.span.service == "sandfleet-executor"
    killed = next(node for node in steps[4].children if node.span.name == "execute_tool run_code")
    assert "roll_back" in names(killed.children[-1].children)
    assert killed.span.attributes["sandfleet.rollback"] == "done"
    assert not [gap for tree in found for gap in gaps(tree)]
    assert not [node for tree in found for _, node in tree.walk() if node.is_orphan]


def test_the_claim_goes_from_the_client_to_the_fleet_and_shows_its_phases(spans):
    (claim,) = [tree for tree in trees(spans) if tree.span.name.endswith("FleetService/Claim")]
    (served,) = [node for node in claim.children if node.span.service == "sandfleet-fleet"]
    phases = served.children
    assert names(phases) in (["bind"], ["wait", "start", "bind"])
    assert [phase.span.start for phase in phases[1:]] == [phase.span.end for phase in phases[:-1]]


def test_a_child_process_has_the_cells_span_as_its_parent(exported, spans):
    _, said, _ = exported
    trace_id, span_id = re.search(r"parent 00-(\w{32})-(\w{16})-\w\w", said).groups()
    (cell,) = [span for span in spans if (span.trace_id, span.span_id) == (trace_id, span_id)]
    assert cell.name == "execute_cell"


def test_code_output_names_and_messages_are_in_no_span(exported):
    path, _, _ = exported
    assert CANARY.replace("-", "_").encode() not in path.read_bytes()


def test_contents_are_in_the_spans_where_they_are_asked_for(tmp_path):
    path = tmp_path / "t.jsonl"
    said, _ = played(SANDFLEET_TRACES=str(path), OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true")
    first = next(one for one in read(path, re.search(r"answered (\S+)", said)[1]) if "run_code" in one.name)
    told = next(one for one in read(path, first.trace_id) if one.name == "execute_tool run_code").attributes
    assert "secret = " in json.loads(told["gen_ai.tool.call.arguments"])["code"]
    assert told["gen_ai.tool.call.result"].startswith(CANARY.replace("-", "_"))


# Attribute names of the published conventions; deprecated ones among them.
ROOMS = ("gen_ai", "rpc", "k8s", "process", "error", "server", "user", "service", "telemetry")


def constants():
    """Names that are published, and those that are deprecated."""
    known, deprecated = set(), set()
    for room in ROOMS:
        path = Path(next(iter(published.__path__))) / f"{room}_attributes.py"
        tree = ast.parse(path.read_text())
        for statement, note in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.Constant):
                known.add(statement.value.value)
                told = isinstance(note, ast.Expr) and str(getattr(note.value, "value", ""))
                # The others have the same name in another place: as stable ones, or in the repository of GenAI.
                if told and re.match(r"\s*Deprecated: (?!Moved to)", told):
                    deprecated.add(statement.value.value)
    # What is stable has its constants elsewhere.
    for room in ("error", "server", "service", "telemetry"):
        module = import_module(f"opentelemetry.semconv.attributes.{room}_attributes")
        known |= {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return known, deprecated


def unpublished(attributes):
    """Names that are neither ours nor published, and deprecated ones."""
    known, deprecated = constants()
    return {name for name in attributes if not name.startswith("sandfleet.") and name not in known - deprecated}


def test_attributes_are_named_as_the_published_conventions_name_them(spans):
    used = {name for span in spans for name in span.attributes}
    used |= {name for span in spans for event in span.events for name in event.attributes}
    assert {"gen_ai.tool.call.id", "rpc.method", "sandfleet.outcome"} <= used
    assert unpublished(used) == set()
    assert unpublished({"rpc.service", "gen_ai.system", "outcome"}) == {"rpc.service", "gen_ai.system", "outcome"}


class Nonsense(BaseHTTPRequestHandler):
    """A collector that answers what no collector does."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n\xff\xff")
        self.close_connection = True

    def log_message(self, *words):
        pass


def test_a_collector_that_answers_nonsense_costs_spans_and_nothing_else():
    with ThreadingHTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said, complained = over_otlp(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert "end answered" in said
    assert "Traceback" not in complained


class Slow(BaseHTTPRequestHandler):
    """A collector that takes its time: it reads, and never answers before the test is over."""

    over = threading.Event()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.over.wait(100)

    def log_message(self, *words):
        pass


def test_a_slow_collector_costs_spans_and_nothing_else():
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            # A fleet whose end waited for it would be killed, and the program would not come to its end in time.
            said, complained = over_otlp(f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            Slow.over.set()
            server.shutdown()
    assert "end answered" in said
    assert "Traceback" not in complained


COLLECTOR = """
receivers:
  otlp:
    protocols: {http: {endpoint: "127.0.0.1:PORT"}}
processors:
  batch: {timeout: 200ms}
exporters:
  otlphttp: {endpoint: "ENDPOINT", compression: gzip}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], processors: [batch], exporters: [otlphttp]}
    metrics: {receivers: [otlp], processors: [batch], exporters: [otlphttp]}
    logs: {receivers: [otlp], processors: [batch], exporters: [otlphttp]}
"""


def test_a_real_collector_passes_on_the_whole_trace(tmp_path):
    """Two variables are all that the program has; the collector sends what it took to another one."""
    program, port = tool("collector"), free_port()
    config = tmp_path / "collector.yaml"
    with collecting() as behind:
        config.write_text(COLLECTOR.replace("PORT", str(port)).replace("ENDPOINT", behind.endpoint))
        with subprocess.Popen([str(program), "--config", str(config)], stderr=subprocess.PIPE, text=True) as collector:
            try:
                next(line for line in collector.stderr if "Everything is ready" in line)
                reading = threading.Thread(target=collector.stderr.read, daemon=True)
                reading.start()
                said, complained = over_otlp(f"http://127.0.0.1:{port}")
            finally:
                # It sends what it has before it ends.
                collector.terminate()
                collector.wait(30)
    assert not complained
    assert "end answered" in said
    found = trees(behind.spans())
    assert "invoke_agent tester" in names(found)
    assert {node.span.service for tree in found for _, node in tree.walk()} >= {
        "sandfleet",
        "sandfleet-executor",
        "sandfleet-fleet",
    }
    assert not [gap for tree in found for gap in gaps(tree)]
    assert not [node for tree in found for _, node in tree.walk() if node.is_orphan]


def test_a_dead_collector_costs_spans_and_nothing_else():
    said, complained = over_otlp("http://127.0.0.1:9")
    assert "end answered" in said
    # OpenTelemetry says so, and not for each span.
    assert len(complained.splitlines()) < 30
    assert "export" in complained


def test_the_waterfall_of_a_session_is_drawn_in_a_terminal(exported, capsys):
    path, _, sandbox = exported
    assert main(["trace", sandbox, "--spans", str(path)]) == 0
    drawn = capsys.readouterr().out
    assert "invoke_agent tester" in drawn
    assert re.search(r"execute_cell: killed +▏*█*.* \d", drawn)
    assert main(["trace", "--spans", str(path)]) == 0
    assert sandbox in capsys.readouterr().out
    assert main(["trace", "nothing", "--spans", str(path)]) == 1


def test_the_report_of_a_session_opens_in_a_browser_and_says_what_went_wrong(exported, tmp_path, capsys):
    path, _, sandbox = exported
    page = tmp_path / "report.html"
    assert main(["report", sandbox, "--spans", str(path), "-o", str(page)]) == 0
    command = [tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    shown = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=100, check=True,
    ).stdout  # fmt: skip
    body = shown.partition('<main id="page">')[2].partition("</main>")[0]
    assert "Went well: answered" in body
    assert "3 of 7 steps failed on the way" in body
    assert "rolled back" in body
    assert "Code and output are missing" in body
    assert "look_up" in body
    assert CANARY.replace("-", "_") not in page.read_text()


def test_top_without_an_id_shows_pools_and_sessions(tmp_path, monkeypatch, capsys):
    with a_fleet(tmp_path / "f") as fleet:
        monkeypatch.setenv("SANDFLEET_ADDRESS", f"unix:{fleet.state_dir}/fleet.sock")
        bound = fleet.claim("r1")
        assert main(["top", "--count", "2", "--interval", "0.1"]) == 0
        drawn = capsys.readouterr().out
        assert re.search(r"sessions 1  began 0.0/s  ended 0.0/s", drawn)
        assert re.search(r"python +\d/\d .* 1 +0 ", drawn)
        fleet.release(bound.sandbox.sandbox_id)
        assert main(["top", "--count", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["sessions"] == 0
