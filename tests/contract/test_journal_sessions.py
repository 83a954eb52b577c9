"""Sessions of agents are replayed; what a session had around it is asked for; planted differences are named."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from sandfleet import AsyncFleet, AsyncSandbox, Limits, ServiceSpec
from sandfleet.codeact import CodeActAgent
from sandfleet.codeact.policies.scripted import ScriptedPolicy
from sandfleet.demo.session import AGENTS
from sandfleet.journal.records import Head, Record
from sandfleet.replay import load, replay, session_envs, session_settings
from support.fleet.process import a_fleet

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

REPLIES = yaml.safe_load((Path(__file__).parents[1] / "unit/client/codeact/replies.yaml").read_text())
RESULTS = {"same", "same but for", "different", "skipped", "not replayed", "cannot be replayed"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with a_fleet(tmp_path_factory.mktemp("fleet") / "f") as process:
        yield process


@pytest.fixture
async def fleet(served):
    async with await AsyncFleet.connect(f"unix:{served.state_dir}/fleet.sock") as connected:
        yield connected


async def recorded(fleet, path, session, **options):
    """The records of a session that does this."""
    async with AsyncSandbox.create(fleet=fleet, **options) as sandbox:
        await session(sandbox)
        await sandbox.journal.export(path)
    return load(path)


async def again(fleet, found, own=None, **options):
    """The replay in a sandbox that was created with variables of its own."""
    async with AsyncSandbox.create(fleet=fleet, envs=own) as sandbox:
        return await replay(found, sandbox, **options)


def not_the_same(done):
    return [(step.number, step.step.title, step.word, step.why, step.sameness) for step in done.steps if not step.ok]


@pytest.mark.parametrize("agent", range(len(AGENTS)), ids=[each.TITLE for each in AGENTS])
async def test_a_session_of_the_demo_replays(fleet, tmp_path, agent):
    task = AGENTS[agent].make(1)

    async def session(sandbox):
        for name, data in task.files.items():
            await sandbox.files.write(name, data)
        run = await CodeActAgent(ScriptedPolicy("script", task.script), sandbox, max_steps=25, max_failures=6).run(
            task.prompt
        )
        assert run.answer is not None

    found = await recorded(fleet, tmp_path / "demo.journal", session)
    done = await again(fleet, found, go_on=True)
    assert not_the_same(done) == []
    assert done.count("same") + done.count("same but for") >= len(task.files) + 2


async def test_the_code_of_recorded_replies_of_models_replays(fleet, tmp_path):
    """Each shape of a reply that means code or a command, as the loop runs it."""
    wanted = [case["expect"] for case in REPLIES if {"run", "command"} & case["expect"].keys()]

    async def session(sandbox):
        for expect in wanted:
            if "command" in expect:
                await sandbox.commands.run(expect["command"], timeout=10)
            elif expect.get("language", "python") == "python":
                await sandbox.run_code(expect["run"], timeout=10)

    found = await recorded(fleet, tmp_path / "replies.journal", session)
    done = await again(fleet, found, go_on=True)
    assert len(found) > 40
    assert not_the_same(done) == []


async def test_variables_of_session_and_context_are_asked_for_and_are_no_part_of_the_journal(fleet, tmp_path):
    """Their values, and those of services, are nowhere in it: only digests."""
    own, context, service = ({name: f"canary-{name}-8c1f"} for name in ("OWN", "CONTEXT", "SERVICE"))

    async def session(sandbox):
        await sandbox.create_context("other", envs=context)
        await sandbox.run_code("import os; print(len(os.environ['CONTEXT']), len(os.environ['OWN']))", context="other")
        spec = ServiceSpec(name="web", cmd=["sleep", "60"], envs=service)
        await sandbox.services.apply([spec])

    path = tmp_path / "one.journal"
    found = await recorded(fleet, path, session, envs=own)
    assert b"canary" not in path.read_bytes()
    assert b"canary" not in path.with_name("one.journal.heads").read_bytes()
    # The control: what code prints is in it.
    assert b"19 15" in path.read_bytes()
    given = {**own, **context}
    assert session_envs(found, given) == own

    for envs, given_own, why in (
        (given, None, "create the sandbox with OWN as they were"),
        (given, {"OWN": "another"}, "create the sandbox with OWN as they were"),
        ({}, own, "give CONTEXT as they were"),
        ({"CONTEXT": "another"}, own, "give CONTEXT as they were"),
    ):
        (said,) = [step.why for step in (await again(fleet, found, given_own, envs=envs)).steps if not step.ok]
        assert said.endswith(why)
    done = await again(fleet, found, own, envs=given)
    assert done.ok
    (service_step,) = [step for step in done.steps if step.word == "not replayed"]
    assert service_step.why.startswith("service web (applied)")


async def test_random_numbers_are_the_same_where_the_session_asks_for_a_seed(fleet, tmp_path):
    """The seed stands in the record, so a replay needs no word about it. test_journal_replay has the control."""

    async def session(sandbox):
        await sandbox.run_code("import random\nprint(random.random(), random.sample(range(1000), 5))")
        await sandbox.run_code("import numpy\nprint(numpy.random.rand(3), numpy.random.randint(1000))")
        await sandbox.run_code("echo $RANDOM $RANDOM", language="bash")
        await sandbox.run_code("console.log(Math.random())", language="javascript")
        await sandbox.commands.run(["python3", "-c", "import random; print(random.random())"])
        await sandbox.fork_context("default", context_ids=["copy"])
        await sandbox.run_code("print(random.random(), numpy.random.rand())", context="copy")

    found = await recorded(fleet, tmp_path / "one.journal", session, envs={"SANDFLEET_SEED": "7"})
    settings = session_settings(found, {})
    assert settings["envs"] == {"SANDFLEET_SEED": "7"}
    async with AsyncSandbox.create(fleet=fleet, **settings) as sandbox:
        done = await replay(found, sandbox, go_on=True)
    assert {step.word for step in done.steps} == {"same", "skipped"}, not_the_same(done)


async def test_a_replay_opens_with_the_sessions_limits_and_mounts_or_says_what_is_missing(fleet, tmp_path):
    async def session(sandbox):
        await sandbox.files.write("src/a.txt", "mounted")
        await sandbox.run_code(
            "import resource\nopen('/app/a.txt').read(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]"
        )

    options = {"limits": Limits(open_files=128, max_timeout=99.5), "mounts": {"/app": "src"}}
    found = await recorded(fleet, tmp_path / "one.journal", session, **options)
    settings = session_settings(found, {})
    assert settings["mounts"] == {"/app": "src"}
    assert (settings["limits"].open_files, settings["limits"].max_timeout) == (128, 99.5)
    async with AsyncSandbox.create(fleet=fleet, **settings) as sandbox:
        done = await replay(found, sandbox, go_on=True)
    assert done.ok, not_the_same(done)
    assert done.steps[0].why == "the fresh session has a record of its own"
    # A sandbox without them: what is missing is named, and so is what came of it.
    lost = await again(fleet, found, go_on=True)
    assert "limit open_files was 128, and is 4096" in lost.steps[0].why
    assert "mount /app was src, and is not there" in lost.steps[0].why
    assert lost.steps[-1].word == "different"


@pytest.mark.parametrize("limits", [{"memory_bytes": "x", "processes": -1, "open_files": 1e99}, 3, None, [], {"a": 1}])
def test_settings_of_a_hostile_record_are_values_of_their_kinds(limits):
    opened = Record(Head(1, "a" * 64), "0" * 64, "opened", 0.0, {"limits": limits, "mounts": {"/app": 3, "/b": "c"}})
    assert session_settings([opened], {}) == {"envs": {}, "mounts": {"/b": "c"}}


async def test_a_network_that_is_missing_is_found_and_named(fleet, tmp_path):
    """The code asks a service of the session; a replay has none."""
    ask = "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:8123/page.txt', timeout=5).read())"

    async def session(sandbox):
        await sandbox.files.write("page.txt", "served")
        serve = ServiceSpec(name="web", cmd=["python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"])
        await sandbox.services.apply([serve])
        await sandbox.commands.run(
            "for i in $(seq 200); do (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null && exit 0; sleep 0.1; done; exit 1"
        )
        await sandbox.run_code(ask)

    found = await recorded(fleet, tmp_path / "one.journal", session)
    last = [record for record in found if record.kind == "execution"][-1]
    assert "served" in last.body["stdout"]["text"]
    kept = [record for record in found if record.kind != "execution" or record is last]
    done = await again(fleet, kept)
    assert (done.steps[-1].step.record.number, done.steps[-1].word) == (last.number, "different")
    differences = {each.field: each.now for each in done.steps[-1].sameness.differences}
    assert "refused" in differences["error.value"]
    assert any(step.why.startswith("service web") for step in done.steps)


async def test_a_changed_setting_of_the_session_is_named(fleet, tmp_path):
    async def session(sandbox):
        await sandbox.run_code("1")

    opened, cell = await recorded(fleet, tmp_path / "one.journal", session)
    fixed = {**opened.body["environment"], "PYTHONHASHSEED": "7"}
    changed = replace(opened, body={**opened.body, "network": "another", "environment": fixed})
    first, second = (await again(fleet, [changed, cell])).steps
    assert (first.word, second.word) == ("skipped", "same")
    assert "network was another, and is" in first.why
    assert "PYTHONHASHSEED was 7, and is 0" in first.why
    # The control: an honest record names no change.
    assert (await again(fleet, [opened, cell])).steps[0].why == "the fresh session has a record of its own"


async def test_a_changed_package_is_found_and_named(fleet, tmp_path):
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        one = (await sandbox.environment()).packages[0]
    for version, word in ((one.version, "same"), ("0.0.1", "different")):
        body = {"requested": [one.name], "installed": [{"name": one.name, "version": version}], "ok": True}
        done = await again(fleet, [Record(Head(1, "a" * 64), "0" * 64, "packages", 0.0, body)])
        assert done.steps[0].word == word
    (difference,) = done.steps[0].sameness.differences
    assert (difference.field, difference.was, difference.now) == (f"package {one.name}", "0.0.1", one.version)


VALUES = (
    None,
    True,
    -1,
    1 << 70,
    1e300,
    "",
    "\x00",
    "\ud800",
    "../../etc/passwd",
    "x" * 5000,
    [],
    ["a", 3],
    {"a": [1]},
)
FIELDS = {
    "execution": ("id", "type", "code", "argv", "context", "language", "env", "deadline", "stdin", "cwd", "signals"),
    "file": ("op", "path", "to", "mode", "content", "sha256", "compression", "recursive", "overwrite"),
    "context": ("op", "context", "language", "cwd", "env", "parent", "contexts"),
    "state": ("op", "name", "context"),
    "opened": ("envs", "environment", "network"),
    "packages": ("installed",),
    "tool_call": ("tool", "arguments", "answer", "execution", "error", "secret"),
}
HONEST = {
    "execution": {"type": "cell", "code": {"text": "1"}, "context": "default", "language": "python"},
    "file": {"op": "write", "path": "a.txt", "mode": 0, "content": "", "sha256": "e3b0"},
    "context": {"op": "created", "context": "other", "language": "python", "cwd": ""},
    "state": {"op": "saved", "name": "kept", "context": "default"},
    "tool_call": {"tool": "weather", "execution": "e", "arguments": {"text": "{}"}, "answer": {"text": "1"}},
}


def hostile():
    """Records that no executor writes: each field of each kind with each value that does not belong there."""
    number = itertools.count(1)
    for kind, names in FIELDS.items():
        for name, value in itertools.product(names, VALUES):
            n = next(number)
            body = {"id": f"e{n}", **HONEST.get(kind, {}), name: value}
            yield Record(Head(n, "a" * 64), "0" * 64, kind, 0.0, body)
            if name == "op":
                continue
            for op in {"file": ("extract", "move", "remove"), "context": ("forked", "deleted")}.get(kind, ()):
                n = next(number)
                yield Record(Head(n, "a" * 64), "0" * 64, kind, 0.0, {**body, "op": op})


async def test_hostile_bodies_are_judged_and_end_no_replay(fleet):
    """None raises anything but the one error that a value of a record may cause: it is in its step's result."""
    found = [record for record in hostile() if record.kind != "tool_call"]
    done = await again(fleet, found, go_on=True)
    assert len(done.steps) == len(found)
    assert {step.word for step in done.steps} <= RESULTS
    for step in done.steps:
        assert json.dumps(step.why)


async def test_hostile_records_of_tools_end_no_replay(fleet):
    found = [record for record in hostile() if record.kind == "tool_call"]
    async with AsyncSandbox.create(fleet=fleet, contract="brokered") as sandbox:
        done = await replay(found, sandbox, go_on=True)
    assert {step.word for step in done.steps} == {"skipped"}
