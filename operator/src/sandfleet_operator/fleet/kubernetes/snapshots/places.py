"""Where the snapshots of a namespace are in the store: below the cluster and the namespace, both by their UIDs.

The names of namespaces are alike in many clusters, and come back in one. Their UIDs do neither.
"""

from sandfleet_operator.api.kube import NAMESPACE, KubeError, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

# It is in every cluster, and stays as long as the cluster does.
CLUSTER = "kube-system"


class Places:
    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self._cluster = ""

    async def cluster(self) -> str:
        """Raises FleetError."""
        if not self._cluster:
            self._cluster = await self._uid(CLUSTER)
        return self._cluster

    async def of(self, namespace: str) -> str:
        """Raises FleetError. It is asked for each time: the next namespace of this name is another tenant."""
        return f"{await self.cluster()}/{await self._uid(namespace)}/{namespace}"

    async def _uid(self, namespace: str) -> str:
        try:
            found = await self._kube.get(Ref(NAMESPACE, "", namespace))
        except KubeError as error:
            why = f"cannot find the snapshots of namespace {namespace}: {error}"
            raise SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error(why) from error
        return str(found["metadata"]["uid"])
