"""A process that leads until it is killed: KUBECONFIG NAMESPACE NAME. It says its number when it begins."""

import asyncio
import sys

from sandfleet_operator.api.kube import LEASE, Ref
from sandfleet_operator.cluster.kube import connect
from sandfleet_operator.cluster.lease import Lease
from sandfleet_operator.plan.leadership import Terms

SHORT = Terms(duration=3.0, renew_deadline=2.0)


async def main(kubeconfig: str, namespace: str, name: str) -> None:
    lease = Lease(await connect("lease-holder", kubeconfig), Ref(LEASE, namespace, name), "killed", SHORT)
    print(await lease.acquire(), flush=True)
    await lease.hold(sys.exit)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
