"""Metrics of a real fleet: each moves by the event that it counts, and Prometheus itself reads them."""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

import pytest
import pytest_asyncio
from sandfleet import AsyncFleet, AsyncSandbox, tool
from sandfleet_api.fleet.v1 import fleet_pb2
from support import tools
from support.fleet.process import PATIENCE, a_fleet
from support.pages import ROOT

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]
# Measured by its own processor time, of which the metric is the sum: a slow machine has its time.
BURN = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
BROKERED = 'namespace="",pool="python-brokered"'


@tool
def look_up(name: str) -> int:
    """A number."""
    if name == "nothing":
        raise LookupError(name)
    return 1


@pytest.fixture(scope="module")
def process():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="sf-") as path, a_fleet(f"{path}/f", "--metrics-port", str(port)) as made:
        made.metrics = f"http://127.0.0.1:{port}/metrics"
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(process):
    async with await AsyncFleet.connect(f"unix:{process.state_dir}/fleet.sock") as made:
        yield made


async def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken, tempfile.TemporaryDirectory(prefix="sf-") as path:
        port = taken.getsockname()[1]
        command = ["-m", "sandfleet_operator.fleet", "serve-local", "--state-dir", f"{path}/f"]
        fleet = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--metrics-port", str(port), stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(fleet.communicate(), PATIENCE)
    assert fleet.returncode == 1
    assert f"cannot serve metrics on port {port}: " in said.decode()


def scraped(process):
    with urllib.request.urlopen(process.metrics, timeout=PATIENCE) as answer:
        return answer.read().decode()


def value(text, series):
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{series} ")), 0.0)


async def moved(process, series, most=PATIENCE):
    """The series, as soon as it is there."""
    async with asyncio.timeout(most):
        while not (found := value(await asyncio.to_thread(scraped, process), series)):
            await asyncio.sleep(0.05)
    return found


async def test_executions_tools_and_resources_are_counted_when_a_sandbox_is_released(process, fleet):
    before = scraped(process)
    async with AsyncSandbox.create(fleet=fleet, contract="brokered") as sandbox:
        async with await sandbox.serve_tools([look_up]):
            await sandbox.run_code(f"import tools\ntools.look_up('x')\n{BURN}")
            await sandbox.run_code("tools.look_up('nothing')")
        await sandbox.run_code("while True: pass", timeout=0.3)
        await sandbox.commands.run("exit 3", check=False)
    text = scraped(process)

    def added(name, labels=""):
        series = f"{name}{{{BROKERED}{labels}}}"
        return value(text, series) - value(before, series)

    assert added("sandfleet_executions_total", ',kind="cell",outcome="ok",blame="none"') == 1
    assert added("sandfleet_executions_total", ',kind="cell",outcome="error",blame="code"') == 1
    assert added("sandfleet_executions_total", ',kind="cell",outcome="timeout",blame="limit"') == 1
    assert added("sandfleet_executions_total", ',kind="command",outcome="error",blame="code"') == 1
    assert added("sandfleet_execution_seconds_count", ',kind="cell"') == 3
    assert added("sandfleet_tool_calls_total", ',end="ok"') == 1
    assert added("sandfleet_tool_calls_total", ',end="error"') == 1
    assert added("sandfleet_session_cpu_seconds_total") > 0
    assert added("sandfleet_usage_readings_total", ',outcome="counted"') == 1
    assert value(text, f"sandfleet_session_processes{{{BROKERED}}}") == 0, "a sandbox that is gone holds nothing"


async def test_a_renewal_reads_what_a_session_holds(process, fleet):
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.run_code("open('/workspace/file', 'wb').write(b'x' * 5_000_000); 1")
        process.stub.Renew(fleet_pb2.RenewRequest(sandbox_id=sandbox.sandbox_id), timeout=PATIENCE)
        where = 'namespace="",pool="python"'
        assert await moved(process, f"sandfleet_session_memory_bytes{{{where}}}") > 10_000_000
        text = scraped(process)
        assert value(text, f"sandfleet_session_disk_bytes{{{where}}}") >= 5_000_000
        assert value(text, f"sandfleet_session_processes{{{where}}}") > 0


async def test_reviews_are_counted_while_they_wait_and_when_they_are_answered(process, fleet):
    async with AsyncSandbox.create(fleet=fleet, contract="reviewed") as sandbox:
        running = asyncio.create_task(sandbox.run_code("open('/workspace/x', 'w').write('x')"))
        async for found in fleet.reviews.watch(sandbox.sandbox_id):
            if found:
                assert value(scraped(process), 'sandfleet_reviews_waiting{namespace=""}') == 1
                await fleet.reviews.answer(found[0], found[0].approve())
                break
        await running
    text = scraped(process)
    assert value(text, 'sandfleet_reviews_waiting{namespace=""}') == 0
    assert value(text, 'sandfleet_review_wait_seconds_count{namespace="",answer="approve"}') == 1


async def test_prometheus_itself_reads_the_metrics_and_answers_queries_about_them(process, fleet, tmp_path):
    asked = tmp_path / "queries"
    ran = f'sandfleet_executions_total{{{BROKERED},kind="cell",outcome="ok"}}'
    queries = [
        f"increase({ran}[2m]) > 0",
        f"{ran} > 1e6",
        'histogram_quantile(0.5, sum by (le) (rate(sandfleet_execution_seconds_bucket{kind="cell"}[2m]))) > 0',
        "sum(sandfleet_claims_total{outcome='bound'}) > 0",
        "count(sandfleet_pool_sandboxes) > 0",
    ]
    asked.write_text("\n".join(queries))
    scrapes = []
    for number in range(2):
        async with AsyncSandbox.create(fleet=fleet, contract="brokered") as sandbox:
            await sandbox.run_code("1")
        scrapes.append(tmp_path / f"{number}.prom")
        scrapes[-1].write_text(scraped(process))
    rules = ROOT / "charts/sandfleet/files/alerts.yaml"
    command = [str(tools.tool("prometheus")), str(rules), str(asked), "60", *map(str, scrapes)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["errors"] == {}
    # What is asked second is not so: an answer to everything would prove nothing.
    assert [said["series"][query] for query in queries] == [1, 0, 1, 1, 1]
