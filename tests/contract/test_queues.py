"""Queues of a fleet on one machine, from their file to the client and the command line, with real executors."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import AsyncFleet, AsyncSandbox, ClaimError, Fleet, NotFoundError, Queued, Sandbox
from sandfleet._fleets.embedded import Options, Process
from sandfleet.cli import main
from support.client.served import served_fleet

Capture = pytest.CaptureFixture[str]
QUEUES = """
apiVersion: sandfleet.io/v1alpha1
kind: SandboxQueue
metadata: {name: one, namespace: team}
spec:
  nominalQuota: {sandboxes: 1}
  priorityClasses: [{name: high}, {name: low}]
---
apiVersion: sandfleet.io/v1alpha1
kind: SandboxQueue
metadata: {name: closed}
spec: {nominalQuota: {sandboxes: 1}, maxLength: 0, cohort: all, stopPolicy: Hold}
---
apiVersion: sandfleet.io/v1alpha1
kind: SandboxQueue
metadata: {name: short}
spec: {nominalQuota: {sandboxes: 1}, maxLength: 1}
"""
UNKNOWN = "cannot claim: there is no queue 'other'"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    path = tmp_path_factory.mktemp("queues") / "queues.yaml"
    path.write_text(QUEUES)
    with served_fleet(Options(pool_size=1, queues=path)) as process:
        yield process


@pytest.mark.smoke
async def test_a_claim_over_quota_waits_is_told_why_and_gets_in(fleet: AsyncFleet) -> None:
    news: list[Queued] = []
    first = await AsyncSandbox.create(fleet=fleet, queue="one")
    waits = asyncio.Event()

    def listen(said: Queued) -> None:
        news.append(said)
        waits.set()

    second = asyncio.ensure_future(
        AsyncSandbox.create(fleet=fleet, queue="one", priority="high", request_id="r-1", on_queued=listen)
    )
    await waits.wait()
    assert (news[0].position, news[0].reason, news[0].queue) == (1, "QuotaReached", "one")
    assert news[0].message.startswith("queue one uses 1 of 1 sandboxes of its quota; it takes 1 sandbox more")
    told = await fleet.explain(request_id="r-1")
    assert (told.verdict, told.reason, told.queue, told.position) == ("Waiting", "QuotaReached", "one", 1)
    assert told.missing is not None
    assert told.missing.sandboxes == 1
    # A claim of the lower class that comes later would be behind it.
    behind = await fleet.explain(queue="one")
    assert (behind.verdict, behind.position, behind.ahead) == ("WouldWait", 2, {"one": 1})
    one = next(queue for queue in await fleet.queues() if queue.queue_id == "one")
    assert (one.nominal.sandboxes, one.admitted, one.pending, one.reason) == (1, 1, 1, "QuotaReached")
    assert one.oldest_wait is not None
    await first.kill()
    made = await second
    assert (await made.run_code("1 + 1")).text == "2"
    assert (await fleet.explain(sandbox_id=made.sandbox_id)).verdict == "Admitted"
    await made.kill()


@pytest.mark.smoke
async def test_the_error_of_a_claim_that_waits_in_vain_says_what_it_waited_for(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet, queue="one"):
        with pytest.raises(ClaimError, match="queue one uses 1 of 1 sandboxes of its quota") as caught:
            await AsyncSandbox.create(fleet=fleet, queue="one", max_wait=0.5)
    assert caught.value.retryable
    assert caught.value.queued is not None
    assert (caught.value.queued.reason, caught.value.queued.queue) == ("QuotaReached", "one")


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("wish", "reason", "message", "retryable"),
    [
        ({"queue": "other"}, "QueueNotFound", UNKNOWN, False),
        ({"queue": "one", "priority": "top"}, "PriorityNotFound", "queue one has no priority class 'top'", False),
        ({"queue": "closed"}, "QueueFull", "0 claims wait in queue closed, which lets no more wait", True),
    ],
)
async def test_a_refusal_has_its_reason_and_is_foretold(
    fleet: AsyncFleet, wish: dict[str, str], reason: str, message: str, retryable: bool
) -> None:
    with pytest.raises(ClaimError, match=message) as caught:
        await AsyncSandbox.create(fleet=fleet, max_wait=0.2, **wish)  # type: ignore[arg-type]
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)
    foretold = await fleet.explain(**wish)  # type: ignore[arg-type]
    assert (foretold.verdict, foretold.reason) == ("WouldBeRefused", reason)
    assert message in foretold.message


async def test_claims_that_a_full_queue_refuses_come_back_when_they_are_told_and_all_get_in(fleet: AsyncFleet) -> None:
    refusals: list[Queued] = []

    def listen(news: Queued) -> None:
        if news.reason == "QueueFull":
            refusals.append(news)

    async def work(number: int) -> str | None:
        async with AsyncSandbox.create(fleet=fleet, queue="short", max_wait=60, on_queued=listen) as sandbox:
            return (await sandbox.run_code(f"{number} + 1")).text

    assert await asyncio.gather(*map(work, range(4))) == ["1", "2", "3", "4"]
    assert refusals
    assert {one.position for one in refusals} == {0}
    assert min(one.eta or 0.0 for one in refusals) >= 1.0
    assert all("which lets no more wait" in one.message for one in refusals)


def test_queues_in_the_sync_client_and_on_the_command_line(
    served: Process, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("SANDFLEET_ADDRESS", served.address)
    with Fleet.connect() as fleet:
        while not fleet.pools()[0].warm:
            time.sleep(0.05)
    assert main(["queue", "explain", "one"]) == 0
    assert capsys.readouterr().out.startswith("WouldBeAdmitted: its quota permits it")
    with Fleet.connect() as fleet, Sandbox.create(queue="one") as sandbox:
        with pytest.raises(NotFoundError, match="cannot explain claim 'r-9'"):
            fleet.explain(request_id="r-9")
        assert main(["explain", sandbox.sandbox_id, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] == "Admitted"
        assert main(["queue", "ls"]) == 0
        *listed, why = capsys.readouterr().out.splitlines()
        assert why == "queue closed admits nothing now: its stopPolicy is Hold"
        assert [line.split()[:6] for line in listed] == [
            ["QUEUE", "COHORT", "WEIGHT", "QUOTA", "ADMITTED", "BORROWED"],
            ["closed", "all", "1", "1", "sandbox", "0"],
            ["one", "-", "1", "1", "sandbox", "1"],
            ["short", "-", "1", "1", "sandbox", "0"],
        ]
        assert main(["queue", "top", "--count", "2", "--interval", "0", "--json"]) == 0
        looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [[queue["admitted"] for queue in look] for look in looks] == [[0, 1, 0], [0, 1, 0]]
        assert main(["run", "--queue", "one", "--max-wait", "0.3", "--json", "-c", "1"]) == 3
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["type"], "queue one uses 1 of 1 sandboxes" in error["message"]) == ("ClaimError", True)
        assert main(["explain", "--queue", "one", "--priority", "low"]) == 0
        first, *rest = capsys.readouterr().out.splitlines()
        assert first.startswith("WouldWait: queue one uses 1 of 1 sandboxes of its quota; it takes 1 sandbox more")
        assert rest == ["reason:   QuotaReached", "queue:    one", "position: 1", "missing:  1 sandbox"]
    for words in (["run", "-c", "1"], ["shell"]):
        command = [*words, "--sandbox", "any"] if words[0] == "run" else [*words, "any"]
        assert main([*command, "--queue", "one"]) == 2
        assert "cannot wait in a queue for a sandbox that exists" in capsys.readouterr().err
    assert main(["create", "--queue", "other"]) == 3
    assert UNKNOWN in capsys.readouterr().err
    assert main(["run", "--queue", "closed", "--max-wait", "0", "-c", "1"]) == 3
    assert re.search(r"which lets no more wait; try again in \d+ s\n$", capsys.readouterr().err)


@pytest.mark.smoke
def test_a_file_that_is_wrong_ends_the_fleet_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(QUEUES.replace("sandboxes", "sandboxs"))
    command = [sys.executable, "-m", "sandfleet_command", "dev", "--queues", "queues.yaml"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    why = "queue one, spec.nominalQuota.sandboxs: there is no such field, only sandboxes, cpu, memory"
    said = f"sandfleet: cannot start an embedded fleet: cannot use the queues of {tmp_path}/queues.yaml: {why}\n"
    assert (done.stderr, done.stdout) == (said, "")
