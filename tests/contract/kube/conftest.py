"""The cluster in memory that the contract runs on."""

import itertools

import pytest
from contract.kube.bed import THING, Bed
from sandfleet_operator.api.kube import KINDS, Ref
from support.fakes.kube_cluster import MemoryCluster
from support.fakes.kube_memory import MemoryKube

NAME = "kube-contract"


@pytest.fixture
async def bed() -> Bed:
    seconds = itertools.count(1_000_000)
    cluster = MemoryCluster(lambda: float(next(seconds)))
    api = MemoryKube(cluster, kinds=(*KINDS, THING))
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})

    async def kubelet(_ref: Ref) -> None:
        cluster.kubelet()

    def too_old() -> str:
        cluster.expire()
        return "1"

    return Bed(api, api, NAME, kubelet, cluster.collect, cluster.bookmark, too_old)
