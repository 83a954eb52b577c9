"""`sandfleet sandboxes`, `sandfleet pool` and `sandfleet run --pool`, against a scripted fleet."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from sandfleet import _portal as portal
from sandfleet.cli import main, sandboxes, table
from sandfleet.testing import Breaks, Fails, FakeFleet, finished, output, queued
from sandfleet_api.executor.v1 import common_pb2, session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2
from support.client.fake_kubectl import Kubectl

Capture = pytest.CaptureFixture[str]
POOL = fleet_pb2.Pool(
    pool_id="team/fast", template="python", target_warm=20, warm=3, starting=4, claimed=5, waiting=6, hit_rate=0.25,
    reason="StartsFail",
)  # fmt: skip
ONE = fleet_pb2.Sandbox(
    sandbox_id="team/one",
    template="python",
    state=fleet_pb2.SANDBOX_STATE_CLAIMED,
    labels={"b": "2", "a": "1"},
    isolation=session_pb2.ISOLATION_GVISOR,
    pool="fast",
)
ONE.lease_expires.FromJsonString("2030-01-02T03:04:05Z")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFleet]:
    made = FakeFleet(sandbox_id="team/one")
    portal.run(made.__aenter__())
    monkeypatch.setenv("SANDFLEET_ADDRESS", made.address)
    # An id with a namespace is one of a cluster, whatever is named: here it is the same fleet.
    monkeypatch.setattr("sandfleet._fleets.discovery._of_cluster", lambda _: _at(made.address))
    yield made
    portal.run(made.__aexit__(None, None, None))


async def _at(address: str) -> object:
    from sandfleet._fleets.fleet import AsyncFleet

    return await AsyncFleet.connect(address)


def test_pools_are_a_table_for_people_and_json_for_programs(fake: FakeFleet, capsys: Capture) -> None:
    for _ in range(2):
        fake.answer_call("ListPools", fleet_pb2.ListPoolsResponse(pools=[POOL, fleet_pb2.Pool(pool_id="team/new")]))
    assert main(["pool", "ls", "-n", "team"]) == 0
    assert capsys.readouterr().out == (
        "POOL       TEMPLATE  WARM  TARGET  STARTING  CLAIMED  WAITING  HIT RATE  REASON\n"
        "team/fast  python    3     20      4         5        6        25%       StartsFail\n"
        "team/new             0     0       0         0        0        -         -\n"
    )
    assert main(["pool", "ls", "-A", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["pool_id"], first["hit_rate"], second["hit_rate"]) == ("team/fast", 0.25, None)
    assert [call.request.namespace for call in fake.called("ListPools")] == ["team", ""]


def test_sandboxes_of_a_namespace_are_listed_with_their_pool_and_labels(fake: FakeFleet, capsys: Capture) -> None:
    over = fleet_pb2.Sandbox()
    over.CopyFrom(ONE)
    over.lease_expires.FromJsonString("2020-01-02T03:04:05Z")
    fake.answer_call("List", fleet_pb2.ListResponse(sandboxes=[over]))
    assert main(["sandboxes", "ls", "-l", "a=1"]) == 0
    assert capsys.readouterr().out == (
        "SANDBOX   STATE    AGE  LEASE ENDS  TEMPLATE  POOL  ISOLATION  WHOSE  LABELS\n"
        "team/one  claimed  -    over        python    fast  gvisor     -      a=1,b=2\n"
    )
    assert fake.called("List")[0].request.label_selector == "a=1"


@pytest.mark.parametrize(
    ("terminal", "variables", "bold"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_only_a_terminal_that_likes_it_gets_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, terminal: bool, variables: dict[str, str], bold: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    table.show(["A"], [["b"]])
    assert capsys.readouterr().out == ("\033[1mA\033[0m\nb\n" if bold else "A\nb\n")


def test_a_watch_says_each_change_on_a_line_of_its_own(fake: FakeFleet, capsys: Capture) -> None:
    steps = [
        fleet_pb2.WatchResponse(changed=ONE),
        fleet_pb2.WatchResponse(synced=True),
        fleet_pb2.WatchResponse(
            unreadable=fleet_pb2.UnreadableSandbox(sandbox_id="team/one", message="cannot read it")
        ),
        fleet_pb2.WatchResponse(removed=ONE),
        Fails(grpc.StatusCode.PERMISSION_DENIED, "Forbidden", "cannot watch: not any more"),
    ]
    for _ in range(2):
        fake.answer_call("Watch", *steps)
    assert main(["sandboxes", "ls", "--watch"]) == 3
    said = capsys.readouterr()
    assert [line.split()[:3] for line in said.out.splitlines()] == [
        ["CHANGE", "SANDBOX", "STATE"],
        ["changed", "team/one", "claimed"],
        ["unreadable", "team/one", "claimed"],
        ["removed", "team/one", "claimed"],
    ]
    assert said.out.splitlines()[2].endswith("  cannot read it")
    assert said.err == "sandfleet: cannot watch: not any more\n"
    assert main(["sandboxes", "ls", "--watch", "--json"]) == 3
    kinds = [json.loads(line).get("kind") for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["changed", "synced", "unreadable", "removed", None]


def test_an_unreachable_sandbox_is_described_by_its_fleet(fake: FakeFleet, capsys: Capture) -> None:
    assert main(["sandboxes", "get", "team/one"]) == 0
    assert "isolation:   namespace (nothing said)" in capsys.readouterr().out.splitlines()
    assert main(["sandboxes", "get", "one", "-n", "team", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sandbox_id"] == "team/one"
    not_ready = Fails(grpc.StatusCode.FAILED_PRECONDITION, "ImagePullFailed", "cannot open it: no image")
    fake.answer_call("Get", fleet_pb2.GetResponse(sandbox=ONE))
    fake.answer_call("Get", not_ready)
    assert main(["sandboxes", "get", "team/one"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {"state:       claimed", "executor:    cannot open it: no image"} <= set(shown)
    fake.ended = True
    assert main(["sandboxes", "get", "team/one"]) == 3


def test_kill_ends_all_sandboxes_and_names_the_ended_ones(fake: FakeFleet, capsys: Capture) -> None:
    assert main(["sandboxes", "kill", "team/one", "team/two"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("team/one killed\n", "team/two is not there: it has ended, or never was\n")
    assert main(["sandboxes", "kill", "two", "--namespace", "team", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"killed": {"two": False}}
    released = [call.request.sandbox_id for call in fake.called("Release")]
    assert released == ["team/one", "team/two", "team/two"]
    # What is not ready, or not ours to use, can be ended all the same.
    assert not fake.called("Get")


def test_exec_passes_on_the_commands_output_and_exit_code(fake: FakeFleet, capfdbinary: object) -> None:
    failed = finished(common_pb2.OUTCOME_ERROR, blame=common_pb2.BLAME_CODE, exit_code=7)
    fake.answer("ls -l -- x", output(b"\xff\x00"), output(b"no", stderr=True), failed)
    assert main(["sandboxes", "exec", "team/one", "--", "ls", "-l", "--", "x"]) == 7
    said = capfdbinary.readouterr()  # type: ignore[attr-defined]
    assert (said.out, said.err) == (b"\xff\x00", b"no")
    fake.answer("true", finished())
    assert main(["sandboxes", "exec", "--timeout", "5", "team/one", "--", "true"]) == 0
    assert fake.called("Start")[1].request.timeout.seconds == 5
    assert not fake.ended


def test_exec_without_a_command_is_wrong_usage(fake: FakeFleet, capsys: Capture) -> None:
    assert main(["sandboxes", "exec", "team/one", "--"]) == 2
    assert "none is given" in capsys.readouterr().err
    assert fake.calls == []


def test_exec_passes_standard_input_to_the_command(fake: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xffin")))
    fake.answer("cat", finished())
    assert main(["sandboxes", "exec", "-i", "team/one", "--", "cat"]) == 0
    assert fake.called("Start")[0].request.open_stdin


@pytest.mark.parametrize("steps", [(Breaks(),), (finished(common_pb2.OUTCOME_LOST, blame=common_pb2.BLAME_PLATFORM),)])
def test_exec_that_the_platform_lost_has_no_code_of_the_command(fake: FakeFleet, steps: tuple[object, ...]) -> None:
    fake.answer("work", *steps)  # type: ignore[arg-type]
    assert main(["sandboxes", "exec", "team/one", "--", "work"]) == sandboxes.NO_COMMAND


def test_exec_over_the_deadline_says_so_and_fails(fake: FakeFleet, capsys: Capture) -> None:
    late = finished(common_pb2.OUTCOME_TIMEOUT, blame=common_pb2.BLAME_LIMIT, message="Too slow.", exit_code=137)
    fake.answer("work", late)
    assert main(["sandboxes", "exec", "team/one", "--", "work"]) == 137
    assert capsys.readouterr().err == "sandfleet: timeout: Too slow.\n"


def test_exec_in_a_sandbox_that_has_ended_is_a_failure_of_its_own(fake: FakeFleet, capsys: Capture) -> None:
    fake.ended = True
    assert main(["sandboxes", "exec", "team/one", "--json", "--", "work"]) == sandboxes.NO_COMMAND
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "SandboxEnded"


def test_exec_as_json_is_one_object(fake: FakeFleet, capsys: Capture) -> None:
    fake.answer("work", output("hi"), finished())
    assert main(["sandboxes", "exec", "team/one", "--json", "--", "work"]) == 0
    assert json.loads(capsys.readouterr().out)["stdout"] == "hi"


@pytest.mark.parametrize("words", ["pool", "pool get", "sandboxes", "sandboxes kill", "sandboxes exec",
                                   "pool ls -n a -A", "run --pool a --sandbox b x", "queue", "queue explain"])  # fmt: skip
def test_wrong_usage_is_exit_code_2(words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2


def test_run_claims_from_a_pool_and_says_how_it_waits(
    fake: FakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "code.py").write_text("code")
    words = ["run", "--pool", "fast", "-n", "team", "--template", "web", "--max-wait", "5", str(tmp_path / "code.py")]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    why = "queue search uses 3 of 3 sandboxes of its quota; it takes 1 sandbox more in queue search, or about 40 s"
    fake.answer_call("Claim", queued(4, message=why), queued(3, "PoolEmpty", 12), queued(1), fake.bound())
    assert main(words) == 0
    request = fake.called("Claim")[0].request
    assert (request.pool, request.namespace, request.template) == ("fast", "team", "web")
    assert request.max_wait.ToTimedelta().total_seconds() <= 5
    # Each stands in the place of the one before, in one line, and is gone when the sandbox is there.
    first, second, third, rest = capsys.readouterr().err.split("\033[K\r")
    assert first == f"\rsandfleet: waiting for a sandbox: position 4: {why}"[:79] + "…"
    assert second == "\rsandfleet: waiting for a sandbox: position 3, about 12 s (PoolEmpty)"
    assert third == "\rsandfleet: waiting for a sandbox: position 1 (no reason given)"
    assert rest == "\r\033[K"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert main(words) == 0
    assert capsys.readouterr().err == ""


def test_queues_are_drawn_on_a_terminal_and_written_as_lines_elsewhere(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    full = fleet_pb2.Queue(queue_id="team/search", pending=4, admitted=3, reason="QuotaReached", message="uses all")
    full.nominal.sandboxes = full.usage.sandboxes = 3
    full.oldest_wait.FromSeconds(100)
    free = fleet_pb2.Queue(queue_id="team/free", stop_policy="None")
    for _ in range(3):
        fake.answer_call("ListQueues", fleet_pb2.ListQueuesResponse(queues=[free, full]))
    fake.answer_call("ListQueues", fleet_pb2.ListQueuesResponse())
    words = ["queue", "top", "--count", "1", "-A"]
    assert main(words) == 0
    assert capsys.readouterr().out == (
        "team/free  admitted 0  pending 0\nteam/search  admitted 3  pending 4  used 100%  oldest 2 min  uses all\n"
    )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    assert main(words) == 0
    plain = capsys.readouterr().out
    assert plain.splitlines()[2].split() == [
        "\x1b[2Kteam/search", "████████████████████", "100%", "3", "4", "2", "min"
    ]  # fmt: skip
    assert plain.splitlines()[3] == "\x1b[2K  uses all"
    monkeypatch.delenv("NO_COLOR")
    assert main(words) == 0
    assert "\x1b[31m" not in plain
    assert "\x1b[31m████" in capsys.readouterr().out
    assert main(words) == 0
    assert "there are no queues" in capsys.readouterr().out
    assert [call.request.namespace for call in fake.called("ListQueues")] == [""] * 4


@pytest.mark.process
def test_a_bare_name_is_in_the_namespace_on_a_cluster(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SANDFLEET_ADDRESS")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("SANDFLEET_KUBECTL", str(Kubectl(tmp_path).program))
    monkeypatch.setenv("SANDFLEET_FLEET", "kubernetes")
    assert main(["sandboxes", "kill", "one"]) == 0
    assert fake.called("Release")[0].request.sandbox_id == "team/one"
