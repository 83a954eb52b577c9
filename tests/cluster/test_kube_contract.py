"""The real API server keeps the same contract as the one in memory, and the client over HTTP with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from cluster.harness.testing import Cluster
from cluster.kube_bed import bed_on, free, things
from contract.kube.bed import Bed
from contract.kube.read_suite import *  # noqa: F403 - the sentences are collected here
from contract.kube.reflector_suite import *  # noqa: F403
from contract.kube.write_suite import *  # noqa: F403
from sandfleet_operator.api.kube import CONFIG_MAP, Forbidden, KubeError
from sandfleet_operator.cluster.kube import Kube, configure


@pytest.fixture(scope="module")
def definition(cluster: Cluster) -> Iterator[None]:
    with asyncio.Runner() as runner:
        made = things(cluster)
        runner.run(made.__aenter__())
        yield
        runner.run(made.__aexit__(None, None, None))


@pytest.fixture
async def bed(cluster: Cluster, definition: None) -> AsyncIterator[Bed]:
    async with bed_on(cluster) as made:
        yield made
        await free(made)


async def test_a_watch_ends_when_its_time_is_over(bed: Bed):
    async with asyncio.timeout(30):
        events = [event async for event in bed.short.watch(CONFIG_MAP, bed.namespace)]
    assert {"ADDED", "BOOKMARK"} >= {event.type for event in events}


async def test_a_service_account_is_told_what_it_may_not_do(bed: Bed, cluster: Cluster):
    configuration = await configure(str(cluster.kubeconfig))
    configuration.cert_file = configuration.key_file = None
    configuration.api_key["BearerToken"] = "Bearer " + cluster.kubectl(
        "create", "token", "default", "-n", bed.namespace
    )
    poor = Kube(configuration, "kube-contract")
    with pytest.raises(Forbidden) as refusal:
        await poor.list(CONFIG_MAP, bed.namespace)
    assert (refusal.value.status, refusal.value.reason) == (403, "Forbidden")
    configuration.api_key["BearerToken"] = "Bearer none"
    with pytest.raises(KubeError) as refusal:
        await poor.list(CONFIG_MAP, bed.namespace)
    assert (refusal.value.status, refusal.value.reason) == (401, "Unauthorized")
    await poor.close()
