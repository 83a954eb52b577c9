"""The client in a real sandbox through the gateway, as from a laptop: only the port-forward itself is left out."""

import asyncio
import dataclasses
import json
import time
from pathlib import Path

import pytest
import pytest_asyncio
from contract.executor.harness import PATIENCE, until
from contract.executor.plane import Plane, isolation, whom
from sandfleet._fleets import cluster, port_forward, relay
from sandfleet._fleets.cluster import Place
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main
from sandfleet.cli.fleets import way
from sandfleet.errors import AccessDenied, LimitReached, UnavailableError
from sandfleet.sandbox import AsyncSandbox
from sandfleet_operator.cluster import reviews
from sandfleet_operator.fleet.gateway.identity import NAME
from sandfleet_operator.fleet.gateway.routes import FleetRoutes
from support.fleet.gateway import gateway_bed
from support.fleet.on_kubernetes import Known

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Counting:
    """The fleet's routes, counted; with `elsewhere`, a gateway that leads another way."""

    def __init__(self):
        self.routes, self.asked, self.elsewhere = None, 0, ""

    async def find(self, sandbox_id, token):
        self.asked += 1
        route = await self.routes.find(sandbox_id, token)
        return dataclasses.replace(route, address=self.elsewhere or route.address)


@pytest_asyncio.fixture(loop_scope="session")
async def bed(tmp_path, host, monkeypatch):
    monkeypatch.setattr(reviews, "ALLOWED", 0.05)
    # On a busy machine an address may answer late: that is another way than the one that is tried here.
    monkeypatch.setattr(relay, "_DIRECT_TIMEOUT", PATIENCE)
    monkeypatch.setattr(way, "_PATIENCE", PATIENCE)
    routes = Counting()
    async with gateway_bed(tmp_path, routes=routes, signing=Plane(host.key), check_every=2.0) as made:
        routes.routes, made.routes = FleetRoutes(made.fleet), routes
        made.allow()
        made.world.kube.allowed.add(("alice", "get", "team", "one"))
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def executor(bed, starting, host):
    """A sandbox `team/one`, in which a session is open."""
    async with starting(session=None, port=True, signed=False) as made:
        plane, one = bed.world.signing, whom(made, session_id="team.one")
        await plane.contacts.contact(one, isolation=isolation(host), first=True)
        await plane.contacts.open(one, lease=600)
        await bed.world.add("one", status=False)
        await bed.world.say("one", address=made.config["listen"], podUID=made.config["sandbox_uid"])
        yield made


def place(bed, **changes):
    address, ca = f"127.0.0.1:{bed.world.port}", bed.world.signing.authority.pem
    made = Place(address, ca, "localhost", Known("alice"), gateway=lambda: f"127.0.0.1:{bed.port}", forwarded=True)
    return dataclasses.replace(made, **changes)


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(bed):
    where = place(bed)
    async with AsyncFleet(where.address, where, find=lambda _: place(bed)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def sandbox(fleet, executor):
    made = await AsyncSandbox.connect("team/one", fleet=fleet, rpc_timeout=8.0)
    yield made
    await made.close()


async def test_cells_files_and_forwarded_ports_go_through(bed, sandbox):
    data = bytes(range(256)) * 40_000
    await sandbox.files.write("data", data)
    assert await sandbox.files.read("data", format="bytes") == data
    assert (await sandbox.run_code("print(6 * 7); open('data', 'rb').seek(0, 2)")).text == str(len(data))
    script = "import socket; s = socket.create_server(('127.0.0.1', 7001)); print('up', flush=True); s.accept()[0].sendall(b'hi')"
    handle = await sandbox.commands.run(["python3", "-c", script], background=True)
    await anext(handle)
    async with await sandbox.forward(7001) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        assert await reader.read(2) == b"hi"
        writer.close()
    # One connection carries all of it.
    assert bed.routes.asked <= 3


async def test_an_execution_goes_on_where_it_was_when_the_gateway_was_restarted(bed, sandbox):
    heard = []
    running = asyncio.ensure_future(
        sandbox.run_code(
            "import time\nfor n in range(30): print(n, flush=True); time.sleep(0.1)", on_stdout=heard.append
        )
    )
    await until(lambda: heard)
    await bed.restart()
    execution = await running
    assert execution.logs.stdout.split() == [str(number) for number in range(30)]
    assert execution.outcome == "ok"


async def test_a_caller_whose_right_is_taken_is_told_so(bed, sandbox):
    assert (await sandbox.run_code("1 + 1")).text == "2"
    bed.forbid()
    began = time.monotonic()
    with pytest.raises(AccessDenied, match="alice may not create codesandboxes/connect"):
        while time.monotonic() < began + 20:
            await sandbox.run_code("1 + 1")
            await asyncio.sleep(0.1)


async def test_an_execution_whose_caller_loses_the_right_is_lost_and_says_why(bed, sandbox):
    heard = []
    running = asyncio.ensure_future(
        sandbox.run_code(
            "import time\nfor n in range(300): print(n, flush=True); time.sleep(0.1)", on_stdout=heard.append
        )
    )
    await until(lambda: heard)
    bed.forbid()
    execution = await running
    assert (execution.outcome, execution.reason) == ("lost", "Forbidden")
    assert "alice may not create codesandboxes/connect" in execution.message


async def test_a_gateway_that_is_full_is_named(bed, executor, fleet):
    await bed.restart(per_caller=0)
    sandbox = await AsyncSandbox.connect("team/one", fleet=fleet, rpc_timeout=2.0)
    with pytest.raises(LimitReached, match="cannot open a tunnel: alice has 0 open, which is the most"):
        await sandbox.run_code("1")
    await sandbox.close()


async def test_a_gateway_that_leads_elsewhere_is_found_out(bed, sandbox, fleet, starting, host):
    """Control: what it leads to answers those who ask for it by its own name."""
    async with starting(session=None, port=True, signed=False) as other:
        plane, one = bed.world.signing, whom(other, session_id="team.one")
        await plane.contacts.contact(one, isolation=isolation(host), first=True)
        await plane.contacts.open(one, lease=600)
        bed.routes.elsewhere = other.config["listen"]
        victim = await AsyncSandbox.connect("team/one", fleet=fleet, rpc_timeout=2.0)
        with pytest.raises(UnavailableError):
            await victim.run_code("1")
        await victim.close()
        await bed.world.say("one", address=other.config["listen"], podUID=other.config["sandbox_uid"])
        own = await AsyncSandbox.connect("team/one", fleet=fleet, rpc_timeout=8.0)
        assert (await own.run_code("1 + 1")).text == "2"
        await own.close()


async def test_a_tunnel_outlives_the_token_that_it_began_with(bed, executor, fleet, monkeypatch):
    monkeypatch.setattr(relay, "_TOKEN_EVERY", 0.1)
    monkeypatch.setattr(reviews, "REMEMBERED", 0.05)
    sandbox = await AsyncSandbox.connect("team/one", fleet=fleet)
    assert (await sandbox.run_code("kept = 1")).outcome == "ok"
    bed.world.kube.knows("alice-2", "alice")
    fleet._connection._tokens.text = "alice-2"
    reviewed = bed.world.kube.reviews
    await until(lambda: any(one["spec"].get("token") == "alice-2" for one in reviewed))
    del bed.world.kube.tokens["alice"]
    before = len(bed.tunnels)
    await asyncio.sleep(3.0)
    assert (await sandbox.run_code("kept")).text == "1"
    assert len(bed.tunnels) == before == 1
    await sandbox.close()


async def test_a_closed_sandbox_leaves_no_tunnel_and_no_socket(bed, executor):
    where = place(bed)
    fleet = AsyncFleet(where.address, where)
    sandbox = await AsyncSandbox.connect("team/one", fleet=fleet)
    assert (await sandbox.run_code("1 + 1")).text == "2"
    folder = Path(fleet._relays._folder.path)
    assert len(list(folder.iterdir())) == len(bed.tunnels) == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    await sandbox.close()
    await until(lambda: len(bed.tunnels) == 0)
    assert list(folder.iterdir()) == []
    await fleet.close()
    assert not folder.exists()


@pytest.mark.parametrize("reachable", [True, False])
async def test_the_gateway_is_used_only_where_the_executors_address_does_not_answer(
    bed, executor, monkeypatch, reachable
):
    if not reachable:

        async def never(_address):
            return False

        monkeypatch.setattr(relay, "_answers", never)
    where = place(bed, forwarded=False)
    async with AsyncFleet(where.address, where) as fleet:
        sandbox = await AsyncSandbox.connect("team/one", fleet=fleet)
        assert (await sandbox.run_code("1 + 1")).text == "2"
        assert len(bed.tunnels) == (0 if reachable else 1)
        await sandbox.close()


@pytest.mark.parametrize(
    ("forwarded", "gateway", "said"),
    [
        (True, True, ["kubectl port-forward to pod/fleet-0", "kubectl port-forward\n", "team/one answers through"]),
        (False, True, ["answers at 127", "whose own address does not answer", "team/one answers at {address}"]),
        (False, False, ["answers at 127", "none is used", "team/one answers at {address}"]),
    ],
)
async def test_the_doctor_says_which_way_is_used(bed, executor, monkeypatch, capsys, forwarded, gateway, said):
    bed.world.kube.allowed.add(("alice", "list", "team", ""))
    where = place(bed, forwarded=forwarded, **({} if gateway else {"gateway": None}))
    monkeypatch.setattr(cluster, "find", lambda _: where)
    monkeypatch.setattr(port_forward, "target_of", lambda _: "pod/fleet-0")
    assert await asyncio.to_thread(main, ["doctor", "--cluster", "--sandbox", "team/one"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["ok", "fleet"],
        ["ok", "account"],
        ["ok", "gateway"],
        ["ok", "sandbox"],
    ]
    assert all(one.format(address=executor.config["listen"]) in shown for one in said), shown


async def test_the_doctor_stops_at_what_does_not_answer(bed, executor, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "find", lambda _: place(bed))
    assert await asyncio.to_thread(main, ["doctor", "--cluster", "-n", "team"]) == 3
    assert "MISSING account              cannot list sandboxes: alice may not list" in capsys.readouterr().out
    bed.world.kube.allowed.add(("alice", "list", "team", ""))
    await bed.server.stop(0)
    assert await asyncio.to_thread(main, ["doctor", "--cluster", "-n", "team", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["ok"]) for one in said["checks"]] == [
        ("fleet", True),
        ("account", True),
        ("gateway", False),
    ]


async def test_the_client_knows_the_gateways_name():
    assert cluster.GATEWAY == NAME
