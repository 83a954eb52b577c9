"""The Lease of an earlier release is still read: its leader keeps its time, the next one continues its count."""

import json
from pathlib import Path

from sandfleet_operator.api.kube import LEASE, Ref
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.plan.leadership import Decision
from support.fakes.kube_memory import MemoryKube

GOLDEN = json.loads((Path(__file__).parent / "golden" / "lease.json").read_text())
REF = Ref(LEASE, "sandfleet-system", "sandfleet-operator")


async def a_contender(identity: str, now: list[float]) -> tuple[Elector, MemoryKube]:
    kube = MemoryKube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REF.namespace}})
    metadata = {"namespace": REF.namespace, "name": REF.name}
    await kube.create({**GOLDEN, "metadata": metadata})
    return Elector(kube, REF, identity, clock=lambda: now[0], wall=lambda: 1_800_000_100.0), kube


async def test_an_earlier_releases_leader_keeps_the_lease_for_its_duration() -> None:
    now = [100.0]
    elector, kube = await a_contender("pod-2_efgh", now)
    assert await elector.step() is Decision.WAIT
    assert (elector.holder, elector.fencing) == ("pod-1_abcd", None)
    now[0] += 14.9
    assert await elector.step() is Decision.WAIT
    assert elector.fencing is None
    now[0] += 0.1
    await elector.step()
    assert elector.fencing == 2
    written = (await kube.get(REF))["spec"]
    assert set(written) == set(GOLDEN["spec"])
    assert (written["holderIdentity"], written["leaseTransitions"]) == ("pod-2_efgh", 2)
