"""The driver of agent loops beside a fleet that refuses, and on a full disk. Its sandboxes are scripted."""

import json
import subprocess
import sys
import textwrap
from collections import Counter

import grpc
import pytest
from sandfleet import AsyncFleet
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
from sandfleet.driver import Blame, Bounds, DriverOptions, FleetDriver, TaskEnd
from sandfleet.testing import Fails, FakeFleet, finished, output
from sandfleet_api.fleet.v1 import fleet_pb2

FULL = "cannot claim a sandbox: the queue is full"
QUOTA = 'cannot create it: pods is forbidden: exceeded quota: team, used: pods=0, limited: pods="0"'


def answers(sandbox, task):
    """An agent of one cell."""

    async def policy(conversation):
        return FinalAnswer(1, conversation.last.evidence.execution_id) if conversation.steps else RunCode("print(1)")

    return CodeActAgent(policy, sandbox)


@pytest.fixture
async def fake():
    async with FakeFleet() as made:
        made.answer("print(1)", output("1"), finished())
        # Its one sandbox is that of all sessions: none ends it.
        for _ in range(50):
            made.answer_call("Release", fleet_pb2.ReleaseResponse(released=True))
        yield made


async def run(fake, tasks, **bounds):
    fleet = await AsyncFleet.connect(fake.address)
    driver = FleetDriver(fleet=fleet, options=DriverOptions(concurrency=20, bounds=Bounds(**bounds)))
    try:
        return {result.key: result async for result in driver.run(answers, [f"task {n}" for n in range(tasks)])}
    finally:
        await fleet.close()


def refusal(reason, message, retry_after=None):
    return Fails(grpc.StatusCode.RESOURCE_EXHAUSTED, reason, message, retry_after)


async def test_tasks_outlast_a_fleet_that_refuses_for_long_and_then_serves(fake):
    # As a fleet that says "in a minute" for an hour.
    fake.fail("Claim", *[refusal("QueueFull", FULL, 0.01)] * 60)
    results = await run(fake, 10, claim=120.0)
    assert Counter(result.end for result in results.values()) == {TaskEnd.ANSWERED: 10}
    assert {result.attempts for result in results.values()} == {1}
    # Each refused call is one try of a claim; those that were refused are not given up, nor doubled.
    claims = fake.called("Claim")
    assert len(claims) == 70
    assert len({call.request.request_id for call in claims}) == 10


async def test_a_fleet_that_refuses_longer_than_a_claim_may_wait_fails_each_task_once_and_says_why(fake):
    fake.fail("Claim", *[refusal("QueueFull", FULL, 3600)] * 500)
    results = await run(fake, 10, claim=0.5, retries=1)
    assert len(results) == 10
    assert {(one.end, one.blame) for one in results.values()} == {(TaskEnd.PLATFORM_FAILURE, Blame.PLATFORM)}
    assert all(FULL in one.message for one in results.values())
    # One retry each at most, and no more than the run's allowance: the fleet is not asked again and again.
    assert len(fake.called("Claim")) <= 20


async def test_a_namespace_without_quota_fails_each_task_at_once_and_says_which_quota(fake):
    fake.fail("Claim", *[refusal("QuotaExceeded", QUOTA)] * 500)
    results = await run(fake, 10)
    assert {one.end for one in results.values()} == {TaskEnd.PLATFORM_FAILURE}
    assert all("exceeded quota: team" in one.message for one in results.values())
    assert len(fake.called("Claim")) == 10


ON_A_FULL_DISK = """
    import asyncio, json, os, sys
    from pathlib import Path
    from sandfleet import AsyncFleet
    from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
    from sandfleet.driver import CheckpointError, DriverOptions, FleetDriver
    from sandfleet.testing import FakeFleet, finished, output

    disk = Path(sys.argv[1])
    ran = 0

    def make(sandbox, task):
        async def policy(conversation):
            global ran
            if conversation.steps:
                return FinalAnswer(1, conversation.last.evidence.execution_id)
            ran += 1
            # What an agent says is on record: the disk fills with it.
            return RunCode("print(1)", intent="x" * 20_000)
        return CodeActAgent(policy, sandbox)

    async def main():
        said = {"raised": "", "before": [], "after": {}, "stored": [], "released": 0, "claims": 0}
        async with FakeFleet() as fake:
            fake.answer("print(1)", output("1"), finished())
            fleet = await AsyncFleet.connect(fake.address)
            driver = FleetDriver(fleet=fleet, options=DriverOptions(concurrency=1))
            given = [f"task {n}" for n in range(8)]
            filler = disk / "filler"
            try:
                async for result in driver.run(make, given, checkpoint=disk / "run.sqlite"):
                    said["before"].append(result.key)
                    fake.ended = False
                    if len(said["before"]) == 3:
                        filling = os.open(filler, os.O_CREAT | os.O_WRONLY)
                        try:
                            while True:
                                os.write(filling, b"x" * 4096)
                        except OSError:
                            os.close(filling)
            except CheckpointError as error:
                said["raised"] = str(error)
            said["released"], said["claims"] = len(fake.called("Release")), len(fake.called("Claim"))
            filler.unlink()
            fake.ended = False
            async for result in driver.run(make, given, checkpoint=disk / "run.sqlite"):
                fake.ended = False
                said["after"][result.key] = said["after"].get(result.key, 0) + result.ok
                said["stored"] += [result.key] * result.is_stored
            await fleet.close()
        print(json.dumps(said | {"ran": ran}))

    asyncio.run(main())
"""


def test_a_run_on_a_full_disk_ends_with_an_error_and_goes_on_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    program = [sys.executable, "-c", textwrap.dedent(ON_A_FULL_DISK), str(disk)]
    mounted = ["sh", "-c", f'mount -t tmpfs -o size=1m tmpfs "{disk}" && exec "$@"', "sh", *program]
    ended = subprocess.run(
        ["unshare", "--mount", "--map-root-user", *mounted], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    said = json.loads(ended.stdout)
    assert "cannot write the checkpoint" in said["raised"]
    assert "full" in said["raised"]
    # What was told before stays told; every task has one result in the end.
    assert set(said["before"]) <= set(said["stored"])
    assert len(said["after"]) == 8
    assert set(said["after"].values()) == {1}
    # A session that could not be recorded has left no sandbox.
    assert said["released"] == said["claims"] >= 3
