"""Health of the process: probes, and the heartbeat that has to come back through the watch."""

import asyncio

import pytest
from sandfleet_operator.api.kube import POD, Ref, failure
from sandfleet_operator.reconciler import health as module
from sandfleet_operator.reconciler.health import BEAT_EVERY, HEARTBEAT, SILENT_AFTER, Health
from support.fakes.kube_memory import Before, MemoryKube
from transition.fake_time import run

OWN = Ref(POD, "sandfleet-system", "operator-1")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def seen(name: str):
    return {"metadata": {"name": name}}


@pytest.mark.parametrize(
    ("pod", "echoes", "later", "alive"),
    [
        (OWN, [], SILENT_AFTER - 1, True),
        (OWN, [], SILENT_AFTER, False),
        (OWN, ["operator-1"], SILENT_AFTER - 1, True),
        (OWN, ["operator-2"], 1, False),
        # Not in a cluster: there is no pod that could be marked.
        (None, [], 1e9, True),
    ],
)
def test_the_process_is_alive_while_its_heartbeat_comes_back(pod, echoes, later, alive):
    clock = Clock()
    health = Health(clock, pod)
    if echoes:
        clock.now += SILENT_AFTER - 1
        for name in echoes:
            health.echo(seen(name))
    clock.now += later
    assert health.alive is alive


def test_the_heartbeat_continues_after_errors():
    async def go() -> None:
        loop = asyncio.get_running_loop()
        kube = MemoryKube()
        await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN.namespace}})
        await kube.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": OWN.namespace, "name": OWN.name},
                "spec": {},
            }
        )
        began = len(kube.writes)
        kube.fault = lambda write: Before(failure("mark it", 500, {})) if write.number == began + 1 else None
        beating = asyncio.create_task(Health(loop.time, OWN).beat(kube))
        await asyncio.sleep(3.5 * BEAT_EVERY)
        beating.cancel()
        assert len(kube.writes) - began == 4
        assert kube.cluster.objects[OWN]["metadata"]["annotations"][HEARTBEAT] == str(int(3 * BEAT_EVERY))

    run(go())


@pytest.mark.parametrize(
    ("line", "ready", "silent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", False, 0, "200"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", True, SILENT_AFTER, "503"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", False, 0, "503"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", True, 0, "200"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", True, 0, "404"),
        (b"\r\n", True, 0, "404"),
        # Longer than a line may be: nothing is answered, and nothing breaks.
        (b"G" * 10_000, True, 0, ""),
    ],
)
async def test_health_probes_are_answered(line, ready, silent, status, monkeypatch):
    clock = Clock()
    health = Health(clock, OWN)
    health.ready = ready
    clock.now += silent
    server = await asyncio.start_server(health._answer, "127.0.0.1", 0, limit=4096)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(line)
        writer.write_eof()
        answer = b""
        try:
            answer = await reader.read()
        except ConnectionResetError:
            assert not status
        writer.close()
    assert answer.split()[1:2] == ([status.encode()] if status else [])


async def test_a_silent_connection_is_closed(monkeypatch):
    monkeypatch.setattr(module, "READ_SECONDS", 0.01)
    server = await asyncio.start_server(Health(Clock(), None)._answer, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
