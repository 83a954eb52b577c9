"""The policy enforcer as a process: it watches the API, answers the CNI plugin and programs nftables.

`python -m cluster.harness.enforcer CONFIG` with a JSON object: server, ca, certificate, key, socket, node_name,
pods, machine_link, machine_address.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp

from . import conntrack, netlink
from .ruleset import Node, render
from .state import Attached, Object, State, Store

RETRY_SECONDS = 0.5
# An answer to a flow that has just been cut is through the node within this time.
ANSWER_SECONDS = 0.1
# A watch is asked to end by itself, so that one that hangs on a dead connection is not waited for for ever.
WATCH_SECONDS = 240
LINE_BYTES = 16 * 1024 * 1024


class ApiError(Exception):
    """The API server said no, or ended a watch."""


async def run(*command: str, script: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate(script.encode())
    if process.returncode:
        raise OSError(f"cannot run {command[0]}: {errors.decode().strip()}")
    return out.decode()


async def flows() -> list[conntrack.Flow]:
    return list(conntrack.parse(await run("conntrack", "--dump", "--family", "ipv4")))


class Enforcer:
    def __init__(self, config: dict[str, Any], session: aiohttp.ClientSession) -> None:
        self.node = Node(config["pods"], config["machine_link"], config["machine_address"])
        self.node_name: str = config["node_name"]
        self.session = session
        self.state = State()
        self.synced = {name: asyncio.Event() for name in ("pods", "namespaces", "networkpolicies")}
        self.applied = ""
        self.guard = asyncio.Lock()
        self.changed = asyncio.Event()

    async def apply(self) -> None:
        """Program the world as it is known now; returns when it is in force."""
        async with self.guard:
            world = self.state.world()
            script = render(world, self.node)
            if script == self.applied:
                return
            await run("nft", "-f", "-", script=script)
            self.applied = script
            cut = conntrack.forbidden(world, await flows(), self.node.machine_address)
            netlink.delete(cut)
            if any(flow.protocol == "udp" for flow in cut):
                await asyncio.sleep(ANSWER_SECONDS)
                netlink.delete(conntrack.answers(cut, await flows()))
            print(
                f"programmed {len(world.pods)} pods, {len(world.policies)} policies; cut {len(cut)} flows", flush=True
            )

    async def apply_changes(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            try:
                await self.apply()
            except (OSError, ValueError) as error:
                print(f"cannot program the node: {error}", flush=True)
                await asyncio.sleep(RETRY_SECONDS)
                self.changed.set()

    async def get(self, path: str) -> Object:
        async with self.session.get(path) as reply:
            if reply.status != 200:
                raise ApiError(f"{path}: HTTP {reply.status}")
            answer: Object = await reply.json()
            return answer

    async def follow(self, path: str, kind: str, store: Store, query: str = "") -> None:
        """Keep a store like the API's: list, then watch, and from the beginning after any trouble."""
        while True:
            try:
                listed = await self.get(f"{path}?{query}")
                store.replace(listed["items"])
                self.synced[kind].set()
                self.changed.set()
                version = listed["metadata"]["resourceVersion"]
                await self.watch(
                    f"{path}?{query}&watch=1&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}", store
                )
            except (aiohttp.ClientError, OSError, ValueError, ApiError) as error:
                print(f"cannot watch {kind}: {error}", flush=True)
                await asyncio.sleep(RETRY_SECONDS)

    async def watch(self, path: str, store: Store) -> None:
        async with self.session.get(path, timeout=aiohttp.ClientTimeout(sock_read=WATCH_SECONDS + 30)) as reply:
            if reply.status != 200:
                raise ApiError(f"{path}: HTTP {reply.status}")
            async for line in reply.content:
                event = json.loads(line)
                match event["type"]:
                    case "ERROR":
                        raise ApiError(str(event["object"].get("message")))
                    case "DELETED" if store is self.state.pods:
                        self.state.forget(event["object"])
                    case "DELETED":
                        store.drop(event["object"])
                    case _:
                        store.put(event["object"])
                self.changed.set()

    async def attach(self, namespace: str, name: str, container: str, address: str) -> None:
        """Decide about a pod whose network is being made, on what the API says now, not on what a watch said last."""
        await asyncio.gather(*(event.wait() for event in self.synced.values()))
        pod, policies, own = await asyncio.gather(
            self.get(f"/api/v1/namespaces/{namespace}/pods/{name}"),
            self.get(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"),
            self.get(f"/api/v1/namespaces/{namespace}"),
        )
        self.state.pods.put(pod)
        self.state.policies.replace(policies["items"], namespace)
        self.state.namespaces.put(own)
        self.state.attached[namespace, name] = Attached(container, address)
        # The flows of the address's previous owner are not this pod's.
        netlink.delete(conntrack.touching(address, await flows()))
        await self.apply()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One question of the CNI plugin."""
        try:
            question = json.loads(await reader.readline())
            if question["command"] == "ADD":
                pod = question["namespace"], question["name"]
                await self.attach(*pod, question["container"], question["address"])
            else:
                self.state.detach(question["container"])
                self.changed.set()
            reply = {"error": ""}
        except (aiohttp.ClientError, OSError, ValueError, KeyError, ApiError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
            print(f"cannot answer the CNI plugin: {reply['error']}", flush=True)
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def serve(self, socket: Path) -> None:
        socket.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self.answer, path=socket)
        mine = f"fieldSelector=spec.nodeName%3D{self.node_name}"
        async with server, asyncio.TaskGroup() as tasks:
            tasks.create_task(self.apply_changes())
            tasks.create_task(self.follow("/api/v1/pods", "pods", self.state.pods, mine))
            tasks.create_task(self.follow("/api/v1/namespaces", "namespaces", self.state.namespaces))
            policies = "/apis/networking.k8s.io/v1/networkpolicies"
            tasks.create_task(self.follow(policies, "networkpolicies", self.state.policies))


async def main(config: dict[str, Any]) -> None:
    context = ssl.create_default_context(cafile=config["ca"])
    context.load_cert_chain(config["certificate"], config["key"])
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(config["server"], connector=connector, read_bufsize=LINE_BYTES) as session:
        enforcer = Enforcer(config, session)
        # No pod is known yet: from here on no pod reaches anything before a decision about it.
        await enforcer.apply()
        await enforcer.serve(Path(config["socket"]))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
