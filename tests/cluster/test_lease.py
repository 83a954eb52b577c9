"""Leadership on the real API server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster.harness.testing import Cluster
from cluster.kube_bed import bed_on
from cluster.lease_holder import SHORT
from contract.kube.bed import Bed
from contract.kube.lease_suite import *  # noqa: F403 - the sentences are collected here
from sandfleet_operator.api.kube import LEASE
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.plan.leadership import Decision


@pytest.fixture
async def bed(cluster: Cluster) -> AsyncIterator[Bed]:
    async with bed_on(cluster) as made:
        yield made


async def test_a_leader_that_is_killed_is_replaced_and_one_that_lives_is_not(bed: Bed, cluster: Cluster):
    program = Path(__file__).with_name("lease_holder.py")
    command = [sys.executable, str(program), str(cluster.kubeconfig), bed.namespace, "leader"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert await asyncio.to_thread(process.stdout.readline) == "1\n"
        second = Elector(bed.api, bed.ref(LEASE, "leader"), "second", SHORT)
        for _ in range(20):
            assert await second.step() is Decision.WAIT
            assert second.holder == "killed"
            await asyncio.sleep(SHORT.duration / 10)
        process.kill()
        async with asyncio.timeout(60):
            assert await second.acquire() == 2
        assert second.holder == "second"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
