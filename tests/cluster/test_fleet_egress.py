"""When the fleet says that egress is open it is, and not before: on the real cluster, under gVisor."""

import asyncio
import contextlib
import functools
import http.server
import json
import secrets
import socket
import threading

import pytest
from cluster.access_bed import PROBE, an_agent, an_object, fleet_bed
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import UnavailableError
from sandfleet.values.sandbox import EgressState
from support.wheels import wheel

RESOLVE = "import socket; bool(socket.getaddrinfo('kubernetes.default.svc.cluster.local', 443))"


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace. Its pools are made by the tests: what they open is the tests' to say."""
    api = images.api
    work = f"egress-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made:
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        yield made
        operator.end()
    api.delete("Namespace", work)


@pytest.fixture
async def fleet(bed, tmp_path):
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_text(bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"])
    token.write_text(bed.token(bed.namespaces[0], "agent"))
    made = await AsyncFleet.connect(
        f"127.0.0.1:{bed.port}", namespace=bed.namespaces[0], ca_file=str(ca), token_file=str(token)
    )
    yield made
    await made.close()


async def a_pool(bed, name, *, more=None, **egress):
    """One warm sandbox of a template of its own, which says `more` as well."""
    api, work = bed.cluster.api, bed.namespaces[0]
    pool = an_object(
        "sandfleet.io/v1alpha1", "SandboxPool", name, work, spec={"templateRef": {"name": name}, "replicas": 1}
    )
    for one in (template(work, name, egress=egress, **(more or {})), pool):
        await asyncio.to_thread(api.create, one)

    def warm():
        labels = {"sandfleet.io/pool": name, "sandfleet.io/state": "warm"}
        pods = (one for one in api.list("Pod", work) if labels.items() <= one["metadata"]["labels"].items())
        conditions = (one for pod in pods for one in pod.get("status", {}).get("conditions") or ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    await asyncio.to_thread(api.wait, f"pool {name} to be warm", warm, 90)


def to(host, port):
    return {"allow": [{"cidr": f"{host}/32", "ports": [{"protocol": "TCP", "port": port}]}]}


@contextlib.contextmanager
def full(address):
    """A port that takes no more connections: what is sent to it is dropped, as by a policy."""
    with socket.create_server((address, 0), backlog=0) as server, contextlib.ExitStack() as waiting:
        while True:
            one = waiting.enter_context(socket.socket())
            one.settimeout(0.3)
            try:
                one.connect(server.getsockname())
            except TimeoutError:
                break
        yield server.getsockname()[1]


class Index(http.server.SimpleHTTPRequestHandler):
    """A folder a package, which is all that pip asks of an index."""

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def index(address, folder):
    """Serves the package `own-package`; its port."""
    (folder / "own-package").mkdir()
    (folder / "own-package" / "own_package-1.0-py3-none-any.whl").write_bytes(wheel("own_package", "1.0"))
    handler = functools.partial(Index, directory=str(folder))
    with http.server.ThreadingHTTPServer((address, 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_port
        server.shutdown()
        serving.join()


async def reached(sandbox, targets):
    execution = await sandbox.run_code(PROBE.replace("TARGETS", repr(json.dumps(targets))))
    return json.loads(execution.text.strip("'"))


async def states(fleet, sandbox_id, last):
    """What a watch says of one sandbox's egress, until it says the last."""
    seen = []
    async with contextlib.aclosing(fleet.watch()) as changes:
        async for change in changes:
            if change.sandbox is not None and change.sandbox.sandbox_id == sandbox_id:
                seen.append(change.sandbox.egress.state)
            if last in seen:
                return seen
    return seen


async def state(sandbox):
    """None while no fleet answers."""
    try:
        return (await sandbox.get_info()).egress.state
    except UnavailableError:
        return None


async def test_egress_is_reported_open_and_user_code_then_reaches_it(bed, fleet):
    named, other = bed.cluster.addresses.outside
    with socket.create_server((named, 0)) as server, socket.create_server((other, 0)) as stranger:
        targets = {"named": (named, server.getsockname()[1]), "not named": (other, stranger.getsockname()[1])}
        await a_pool(bed, "host", **to(*targets["named"]))
        async with await AsyncSandbox.create(pool="host", fleet=fleet) as one:
            assert one.bound.warm
            assert one.bound.egress is EgressState.OPENING
            watching = asyncio.create_task(states(fleet, one.sandbox_id, EgressState.OPEN))
            assert await one.wait_for_egress(60)
            assert await reached(one, targets) == {"named": True, "not named": False}
            egress = (await one.get_info()).egress
            assert (egress.reason, egress.message) == ("Answered", "answered: {}:{}".format(*targets["named"]))
            assert egress.since is not None
            assert set(await asyncio.wait_for(watching, 30)) <= {EgressState.OPENING, EgressState.OPEN}
            # Nothing of it is kept: the next fleet asks again.
            await asyncio.to_thread(bed.fleet.kill)
            await asyncio.to_thread(bed.fleet.start)
            async with asyncio.timeout(90):
                while await state(one) is not EgressState.OPEN:
                    await asyncio.sleep(0.2)
            assert (await one.get_info()).egress.since > egress.since
        # The control: what the claim did not ask for stays closed, and is said to be.
        async with await AsyncSandbox.create(pool="host", fleet=fleet, egress="none") as closed:
            assert closed.bound.egress is EgressState.DENIED
            assert not await closed.wait_for_egress(60)
            assert await reached(closed, targets) == {"named": False, "not named": False}


async def test_name_resolution_is_reported_when_it_works(bed, fleet):
    await a_pool(bed, "names", dns=True)
    async with await AsyncSandbox.create(pool="names", fleet=fleet) as one:
        assert await one.wait_for_egress(60)
        assert (await one.get_info()).egress.message == "answered: name resolution"
        assert (await one.run_code(RESOLVE)).text == "True"


async def test_an_address_that_never_answers_is_not_reported_open(bed, fleet):
    address = bed.cluster.addresses.outside[0]
    with full(address) as port:
        await a_pool(bed, "silent", **to(address, port))
        async with await AsyncSandbox.create(pool="silent", fleet=fleet) as one:
            assert not await one.wait_for_egress(90)
            egress = (await one.get_info()).egress
            assert (egress.state, egress.reason) == (EgressState.OPENING, "NoAnswer")
            assert f"no answer from {address}:{port}" in egress.message


async def test_egress_that_cannot_be_probed_is_not_reported_open(bed, fleet):
    address = bed.cluster.addresses.outside[0]
    with socket.create_server((address, 0)) as server:
        await a_pool(bed, "network", allow=[{"cidr": f"{address}/32"}])
        async with await AsyncSandbox.create(pool="network", fleet=fleet) as one:
            assert not await one.wait_for_egress(60)
            egress = (await one.get_info()).egress
            assert (egress.state, egress.reason) == (EgressState.OPENING, "NotProbeable")
            async with asyncio.timeout(60):
                while not (await reached(one, {"it": (address, server.getsockname()[1])}))["it"]:
                    await asyncio.sleep(0.5)


async def test_a_template_s_packages_come_from_an_index_that_its_egress_opens(bed, fleet, tmp_path):
    address = bed.cluster.addresses.outside[0]
    with index(address, tmp_path) as port:
        pip = {"PIP_INDEX_URL": f"http://{address}:{port}/", "PIP_TRUSTED_HOST": address}
        # Who is kept from it need not try for a minute.
        pip |= {"PIP_RETRIES": "1", "PIP_TIMEOUT": "5"}
        env = [{"name": name, "value": value} for name, value in pip.items()]
        more = {"packages": ["own-package>=1"], "env": env}
        await a_pool(bed, "packed", more=more, **to(address, port))
        async with await AsyncSandbox.create(pool="packed", fleet=fleet) as one:
            # It waits for the installation.
            assert (await one.run_code("import own_package; own_package.VALUE", timeout=120)).text == "'here'"
            found = await one.environment()
            assert [(each.version, each.origin) for each in found.declared] == [("1.0", "workspace")]
        # The control: whose claim opens nothing has none, and is told why.
        async with await AsyncSandbox.create(pool="packed", fleet=fleet, egress="none") as closed:
            execution = await closed.run_code("1 + 1", timeout=120)
            assert (execution.text, [each.reason for each in execution.notices]) == ("2", ["PackagesNotInstalled"])
            assert (await closed.environment()).installation.reason == "IndexUnreachable"
