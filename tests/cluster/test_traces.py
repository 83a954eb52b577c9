"""Sandboxes of gVisor claimed at once on the real cluster, each with one complete trace from the agent to its process.

SANDFLEET_TRACED says how many there are: 50 is the whole figure.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import time
from unittest import mock

import pytest
from cluster.access_bed import an_agent, an_object, fleet_bed
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet.observe.provider import FILE
from sandfleet.observe.spans.store import read
from sandfleet.observe.spans.tree import gaps, trees

TRACED = int(os.environ.get("SANDFLEET_TRACED", "4"))
# Of exporters between two batches, in milliseconds; and how long the last spans may take to arrive, in seconds.
BATCH_MS, ARRIVAL = "500", 30.0

pytestmark = pytest.mark.alone(on="cluster")

# One process claims all of them at once; each agent has a trace of its own.
AGENTS = """
import asyncio, json, sys
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode, RunCommand
from sandfleet.observe import provider

LOAD = json.loads(sys.argv[1])
MOVES = [RunCode("import os\\nprint('parent', os.environ['TRACEPARENT'])"), RunCommand("echo $TRACEPARENT")]

def told(evidence):
    # What the code said; where it came to no end of its own, how it ended.
    return evidence.output.strip() if evidence.ok else f"{evidence.outcome.value}: {evidence.message} {evidence.stderr}"

async def policy(conversation):
    done = len(conversation.steps)
    if done < len(MOVES):
        return MOVES[done]
    seen = conversation.steps[0].evidence
    return FinalAnswer(seen.output.strip(), seen.execution_id)

async def one(fleet, number):
    with provider.tracer().start_as_current_span(f"task {number}") as span:
        async with AsyncSandbox.create(fleet=fleet, pool=LOAD["pool"], timeout=900,
                                       max_wait=900) as sandbox:
            run = await CodeActAgent(policy, sandbox, name="traced").run("Say where you are.")
            said = [told(step.evidence) for step in run.steps if step.evidence]
            return f"{span.get_span_context().trace_id:032x}", sandbox.sandbox_id, run.end.value, said

async def main():
    async with await AsyncFleet.connect(LOAD["fleet"], namespace=LOAD["namespace"], ca_file=LOAD["ca"],
                                        token_file=LOAD["token"]) as fleet:
        print(json.dumps(await asyncio.gather(*(one(fleet, number) for number in range(LOAD["sandboxes"])))))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def spans_file(tmp_path_factory):
    return tmp_path_factory.mktemp("spans") / "traces.jsonl"


@pytest.fixture(scope="module")
def bed(images, kinds, spans_file, tmp_path_factory):
    """Fleet, operator and a pool of gVisor sandboxes; all of them append to one file."""
    api, work = images.api, f"traced-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with (
        mock.patch.dict(os.environ, {FILE: str(spans_file), "OTEL_BSP_SCHEDULE_DELAY": BATCH_MS}),
        fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made,
    ):
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work))
        # Half of them are warm: the others show how a pod starts.
        spec = {"templateRef": {"name": "python"}, "replicas": TRACED // 2, "maxSize": TRACED}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=spec))
        api.wait("the warm half", lambda: warm(made) >= TRACED // 2, 600)
        yield made
        operator.end()
    api.delete("Namespace", work)


def warm(bed):
    pools = bed.cluster.api.list("SandboxPool", bed.namespaces[0])
    return sum((one.get("status") or {}).get("warm", 0) for one in pools)


def played(bed, folder):
    """Trace, sandbox, end and outputs of each agent."""
    (folder / "ca").write_text(bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"])
    (folder / "token").write_text(bed.token(bed.namespaces[0], "agent"))
    load = {"fleet": f"127.0.0.1:{bed.port}", "namespace": bed.namespaces[0], "pool": "fast", "sandboxes": TRACED}
    load |= {"ca": str(folder / "ca"), "token": str(folder / "token")}
    command = [sys.executable, "-c", AGENTS, json.dumps(load)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def named(node, name):
    """The nodes of this name at and below a node."""
    return [one for _, one in node.walk() if one.span.name == name]


def faults(trace_id, outputs, spans):
    """What is wrong with one trace; empty where its tree is complete and each parent covers its children."""
    found = trees([one for one in spans if one.trace_id == trace_id])
    roots = [one.span.name for one in found]
    if len(found) != 1 or not roots[0].startswith("task "):
        return [f"{len(found)} roots: {roots[:5]}"]
    (root,) = found
    wrong = [f"{one.name} is not covered by its parent" for one in gaps(root)]
    wrong += [f"{node.span.name} has lost its parent" for _, node in root.walk() if node.is_orphan]
    wanted = {"invoke_agent traced": "sandfleet", "step run_code": "sandfleet", "execute_cell": "sandfleet-executor",
              "step run_command": "sandfleet", "run_command": "sandfleet-executor",
              "bind": "sandfleet-fleet"}  # fmt: skip
    for name, service in wanted.items():
        if service not in {one.span.service for one in named(root, name)}:
            wrong.append(f"there is no {name} of {service}")
    for execution, said in zip(("execute_cell", "run_command"), outputs, strict=True):
        shown = re.search(r"00-(\w{32})-(\w{16})-\w[13]", said)
        below = {one.span.span_id for one in named(root, execution)}
        if shown is None or shown[1] != trace_id or shown[2] not in below:
            wrong.append(f"the child process of {execution} has another parent: {said[:200]!r}")
    for served in (one for _, one in root.walk() if one.span.service == "sandfleet-fleet" and one.children):
        names = [one.span.name for one in served.children]
        # A pod that was begun for the pool may have been on its way before the claim waited for it.
        if served.span.name.endswith("FleetService/Claim") and sorted(names) not in (
            ["bind"],
            ["bind", "start", "wait"],
        ):
            wrong.append(f"the fleet's claim has the phases {names}")
    pods = [{one.span.name for one in start.children} for start in named(root, "start")]
    # The fleet may greet a pod that listens before the kubelet says that it is ready: the greeting then has that time.
    # The API server's times are whole seconds: phases of the same second come in any order.
    whole = ({"schedule", "pull", "boot", "greet"}, {"schedule", "pull", "greet"})
    wrong += [f"a start has the phases {sorted(names)}" for names in pods if names not in whole]
    return wrong


@pytest.mark.timeout(3000)
def test_each_of_many_sandboxes_at_once_has_one_complete_trace(bed, spans_file, tmp_path):
    began = time.monotonic()
    agents = played(bed, tmp_path)
    took = time.monotonic() - began
    assert [end for _, _, end, _ in agents] == ["answered"] * TRACED
    assert len({sandbox for _, sandbox, _, _ in agents}) == len({trace for trace, *_ in agents}) == TRACED
    # The fleet's batches, and the operator's, come a little later than the agents' own.
    deadline = time.monotonic() + ARRIVAL
    while True:
        wrong = {trace: faults(trace, said, read(spans_file, trace)) for trace, _, _, said in agents}
        wrong = {trace: found for trace, found in wrong.items() if found}
        if not wrong or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    assert wrong == {}, f"{len(wrong)} of {TRACED} traces are not complete"
    spans = sum(len(read(spans_file, trace)) for trace, *_ in agents)
    print(f"{TRACED} traces of {spans} spans in {took:.0f} s")


def test_a_trace_without_one_of_its_spans_is_found(spans_file, bed, tmp_path):
    """The control: each span that is taken out of a complete trace makes it incomplete."""
    (trace, _, _, said), *_ = played(bed, tmp_path)
    deadline = time.monotonic() + ARRIVAL
    while faults(trace, said, spans := read(spans_file, trace)) and time.monotonic() < deadline:
        time.sleep(1.0)
    assert faults(trace, said, spans) == []
    for name in ("invoke_agent traced", "step run_command", "execute_cell"):
        assert faults(trace, said, [one for one in spans if one.name != name]), name


def test_rounds_of_the_operator_are_linked_to_the_traces_and_no_part_of_them(bed, spans_file, tmp_path):
    agents = played(bed, tmp_path)
    deadline, missing = time.monotonic() + ARRIVAL, {sandbox for _, sandbox, *_ in agents}
    while missing and time.monotonic() < deadline:
        time.sleep(1.0)
        missing = {sandbox for sandbox in missing if not rounds(spans_file, sandbox)}
    assert missing == set(), "no round of the operator was traced for these"
    for trace, sandbox, *_ in agents:
        for one in rounds(spans_file, sandbox):
            assert one.trace_id != trace
            assert [link.partition(":")[0] for link in one.links] == [trace]


def rounds(spans_file, sandbox):
    return [one for one in read(spans_file, sandbox) if one.name == "reconcile sandbox"]
