"""Hosts by name from gVisor pods: the chart's egress process, Services and policies of a real cluster."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
from cluster.egress_bed import Bed, egress_bed
from cluster.egress_host import PORT, TLS_PORT
from cluster.harness.testing import Cluster
from cluster.operators import python, template
from sandfleet import AsyncSandbox
from sandfleet._fleets import port_forward
from support.client import chat

pytestmark = [pytest.mark.usefixtures("kinds"), pytest.mark.timeout(300)]
# Speaks with the egress process as an executor would, without an executor's certificate.
WITHOUT_CERTIFICATE = """
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    with context.wrap_socket(socket.create_connection(ADDRESS, 5)) as tls:
        line = b'{"pod": "NAME"}\\n'
        tls.sendall(len(line).to_bytes(4, "big") + line)
        print("said", tls.recv(100))
except OSError as error:
    print("refused", error)
"""
# What hostile code of a session tries at its proxy; prints a word for each.
HOSTILE = """
import os, socket, ssl, urllib.error, urllib.request
def connected(target):
    sock = socket.create_connection(("127.0.0.1", 3128), 20)
    sock.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
    return sock, sock.recv(4096).split(b" ")[1].decode()
def status(target):
    return connected(target)[1]
def asks_for(name):
    sock, _ = connected(f"{HOST}:{TLS_PORT}")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(sock, server_hostname=name).version()
    except OSError:
        return "ended"
def fronted(host):
    sock = socket.create_connection(("127.0.0.1", 3128), 20)
    sock.sendall(f"GET http://{HOST}:{PORT}/ HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    return sock.recv(4096).split(b" ")[1].decode()
forms = ["127.0.0.1:8081", "2130706433:8081", "0x7f.1:8081", "017700000001:8081", "[::1]:8081", "[::ffff:127.0.0.1]:8081"]
print("forms", {form: status(form) for form in forms})
print("metadata", status("169.254.169.254:80"), status("metadata.google.internal:80"))
print("own", status(f"{HOST}:{TLS_PORT}"))
print("server name", asks_for(HOST), asks_for("other.test"), asks_for(None))
print("front", fronted(f"{HOST}:{PORT}"), fronted("other.test"))
silent = [socket.socket() for _ in range(600)]
for sock in silent:
    sock.setblocking(False)
    sock.connect_ex(EGRESS)
try:
    print("key", "PRIVATE KEY" in open(os.environ["SSL_CERT_FILE"]).read())
except OSError as error:
    print("key", error)
"""


@pytest.fixture(scope="module")
def bed(images: Cluster, kinds, program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with egress_bed(images, program("helm"), tmp_path_factory.mktemp("egress")) as made:
        names = [{"host": made.host, "ports": [PORT]}]
        for one in (template(made.work, egress={"names": names}), template(made.work, "closed"), with_key(made)):
            images.api.create(one)
        yield made


def with_key(bed: Bed) -> dict:
    """The template `keyed`: its sandboxes reach the host by TLS, with the key of the Secret `api`."""
    credential = {
        "host": bed.host,
        "format": "Bearer {value}",
        "secretRef": {"name": "api", "key": "token"},
        "env": "EXAMPLE_TOKEN",
    }
    names = [{"host": bed.host, "ports": [PORT, TLS_PORT]}]
    return template(bed.work, "keyed", egress={"names": names, "credentials": [credential]})


@pytest.fixture
async def keyed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncSandbox]:
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    async with await AsyncSandbox.create("keyed", namespace=bed.work, max_wait=90) as made:
        yield made
    port_forward.stop()


def test_a_sandbox_reaches_the_hosts_of_its_list_and_loses_them_with_it(bed: Bed) -> None:
    sandboxes, api = bed.sandboxes, bed.release.cluster.api
    sandboxes.create("one")
    sandboxes.create("none", templateRef={"name": "closed"})
    sandboxes.ready("one", 90)
    sandboxes.ready("none", 90)
    assert bed.asked("one", bed.host) == "200 hello\n"
    assert "not in its egress list" in bed.asked("one", "kubernetes.default.svc.cluster.local")
    # A sandbox of a template without hosts has no way out.
    assert bed.asked("none", bed.host).startswith("nothing")
    # It reaches the port of the egress process, and gets nothing there without a certificate.
    service = api.get("Service", "sandfleet-egress", bed.release.namespace)
    code = WITHOUT_CERTIFICATE.replace("ADDRESS", repr((service["spec"]["clusterIP"], 3129)))
    said = python(sandboxes, "none", code.replace("NAME", f"{bed.work}/one"))
    assert said.startswith("refused") or said == "said b''\n", said
    # The list is changed as kubectl would; within a second or two it counts.
    sandboxes.patch("one", {"egress": {"names": []}})
    api.wait("the list to count", lambda: "not in its egress list" in bed.asked("one", bed.host), 15)
    sandboxes.patch("one", {"egress": None})
    api.wait("the list to count again", lambda: bed.asked("one", bed.host) == "200 hello\n", 15)


def test_the_other_replica_serves_when_one_is_gone(bed: Bed) -> None:
    sandboxes, cluster = bed.sandboxes, bed.release.cluster
    sandboxes.create("two")
    sandboxes.ready("two", 90)
    assert bed.asked("two", bed.host) == "200 hello\n"
    pods = bed.pods("egress")
    assert len(pods) == 2
    cluster.kubectl(
        "delete", "pod", "-n", bed.release.namespace, pods[0]["metadata"]["name"], "--grace-period=0", "--force"
    )
    cluster.api.wait("the other replica", lambda: bed.asked("two", bed.host) == "200 hello\n", 30)


def a_key() -> str:
    return f"canary-{secrets.token_hex(12)}"


# Asks the API, and prints the status and what it says: the digest of the key, and the header, which the API echoes.
CALL = """
import base64, os, urllib.error, urllib.request
token = os.environ["EXAMPLE_TOKEN"]
shown = {"none": {}, "bearer": {"Authorization": "Bearer " + token},
         "basic": {"Authorization": "Basic " + base64.b64encode(f"me:{token}".encode()).decode()}}[HOW]
try:
    answer = urllib.request.urlopen(urllib.request.Request(URL, b"{}", shown), timeout=20)
    print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode().strip())
except OSError as error:
    print(error)
"""


async def called(bed: Bed, sandbox: AsyncSandbox, how: str = "none") -> str:
    url = f"https://{bed.host}:{TLS_PORT}/v1/chat"
    execution = await sandbox.run_code(CALL.replace("URL", repr(url)).replace("HOW", repr(how)))
    assert execution.error is None, execution.error
    return execution.logs.stdout


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def counts(bed: Bed, sandbox: AsyncSandbox, words: str) -> None:
    """Waits until the answer to a call has these words: a changed Secret counts within ten seconds or so."""
    said = ""
    async with asyncio.timeout(60):
        while words not in said:
            said = await called(bed, sandbox)


async def test_a_key_of_a_secret_reaches_its_host_and_nothing_else(bed: Bed, keyed_secret: str, keyed) -> None:
    stars = "*" * len(keyed_secret)
    await counts(bed, keyed, digest(keyed_secret))
    for how in ("none", "bearer"):
        assert await called(bed, keyed, how) == f"200 {digest(keyed_secret)} Bearer {stars}\n"
    assert (await called(bed, keyed, "basic")).startswith(f"200 {digest(keyed_secret)} Basic ****")
    where = "env; cat /proc/*/environ /tmp/.sandfleet-authorities.pem; grep -rs canary- /workspace /tmp /etc /run"
    assert keyed_secret not in (await keyed.commands.run(where)).stdout
    assert "sandfleet-credential-" in (await keyed.commands.run("echo $EXAMPLE_TOKEN")).stdout
    info = await keyed.get_info()
    assert keyed_secret not in repr(info)
    found = await asyncio.to_thread(everything_written, bed)
    # The control: what is looked for is found where it is to be, and what was looked at has this sandbox in it.
    assert [place for place, text in found.items() if has(text, keyed_secret)] == ["secrets"]
    claimed = {place for place, text in found.items() if keyed.sandbox_id.rpartition("/")[2] in text}
    assert claimed >= {"codesandboxes", "pods"}
    assert bed.work in found["events"]


@pytest.fixture
def keyed_secret(bed: Bed) -> Iterator[str]:
    bed.secret("api", key := a_key())
    yield key
    bed.secret("api", None)


def has(text: str, key: str) -> bool:
    """Whether the key stands in it, as it is or in any of the three ways in which base64 has it within a text."""
    raw = key.encode()
    encoded = [base64.b64encode(b"x" * before + raw)[4 * bool(before) : -4].decode() for before in range(3)]
    return key in text or any(one in text for one in encoded)


def everything_written(bed: Bed) -> dict[str, str]:
    """What the cluster has kept: objects of each kind that could have a secret in them, logs, environments."""
    kubectl = bed.cluster.kubectl
    own = ("codesandboxes", "sandboxtemplates", "sandboxpools", "sandboxqueues", "sandboxsnapshots")
    kinds = (*own, "pods", "configmaps", "events", "networkpolicies", "controllerrevisions", "leases", "secrets")
    found = {kind: kubectl("get", kind, "-A", "-o", "yaml") for kind in kinds}
    for component in ("operator", "fleet", "gateway", "egress"):
        for pod in bed.pods(component):
            name, home = pod["metadata"]["name"], bed.release.namespace
            found[f"log of {name}"] = kubectl("logs", name, "-n", home)
            look = ("python3", "-c", "print(open('/proc/1/environ').read(), open('/proc/1/cmdline').read())")
            found[f"environment of {name}"] = kubectl("exec", name, "-n", home, "--", *look)
    for pod in bed.cluster.api.list("Pod", bed.work):
        name = pod["metadata"]["name"]
        found[f"log of {name}"] = kubectl("logs", name, "-n", bed.work, "--all-containers")
    return found


async def test_a_key_is_changed_and_taken_while_a_sandbox_runs(bed: Bed, keyed_secret: str, keyed) -> None:
    await counts(bed, keyed, digest(keyed_secret))
    bed.secret("api", other := a_key())
    await counts(bed, keyed, digest(other))
    bed.secret("api", None)
    await counts(bed, keyed, "502 this session may not reach")
    bed.secret("api", keyed_secret)
    await counts(bed, keyed, digest(keyed_secret))


async def test_an_api_in_openais_form_gets_the_key_that_stays_outside(bed: Bed, keyed_secret: str, keyed) -> None:
    """As a whole, and as a stream that arrives word by word; it refuses another key."""
    await counts(bed, keyed, digest(keyed_secret))
    base = "import os\nos.environ['OPENAI_API_KEY'] = os.environ['EXAMPLE_TOKEN']\n"
    program = f"{base}BASE = 'https://{bed.host}:{TLS_PORT}/v1'\n{chat.TALK}"
    assert (await keyed.run_code(program)).logs.stdout == chat.ANSWERED
    bed.secret("api", other := "of-another-account")
    await counts(bed, keyed, digest(other))
    assert (await keyed.run_code(program)).logs.stdout == chat.refused(other)


async def test_pip_installs_a_wheel_and_a_source_distribution(bed: Bed, keyed_secret: str, keyed) -> None:
    """Over TLS that the host of the key gets, and without any word in the sandbox but where the index is."""
    await counts(bed, keyed, digest(keyed_secret))
    index = f"-i https://{bed.host}:{TLS_PORT}/simple"
    done = await keyed.commands.run(f"pip install {index} outside inside 2>&1", timeout=200)
    assert done.exit_code == 0, done.stdout
    execution = await keyed.run_code("import outside, inside; print(outside.VALUE, '+', inside.VALUE)")
    assert execution.logs.stdout == "from a wheel + from a source\n"


async def test_npm_installs_a_package_and_git_clones_a_repository(bed: Bed, keyed_secret: str, keyed) -> None:
    await counts(bed, keyed, digest(keyed_secret))
    host = f"https://{bed.host}:{TLS_PORT}"
    done = await keyed.commands.run(f"npm install --registry {host}/npm/ greeting 2>&1", timeout=200)
    assert done.exit_code == 0, done.stdout
    assert (await keyed.commands.run(["node", "-p", "require('greeting')"])).stdout == "out there\n"
    done = await keyed.commands.run(f"git clone -q {host}/git/words.git && cat words/words", timeout=100)
    assert (done.exit_code, done.stdout) == (0, "from a repository\n"), done.stderr


async def test_hostile_code_of_a_session_gets_no_further(bed: Bed, keyed_secret: str, keyed) -> None:
    """As tests/unit/operator/fleet/egress/test_proxy_attacks.py tries it, from a gVisor pod."""
    await counts(bed, keyed, digest(keyed_secret))
    service = bed.cluster.api.get("Service", "sandfleet-egress", bed.release.namespace)["spec"]["clusterIP"]
    told = f"HOST, PORT, TLS_PORT, EGRESS = {bed.host!r}, {PORT}, {TLS_PORT}, ({service!r}, 3129)\n"
    execution = await keyed.run_code(told + HOSTILE, timeout=120)
    assert execution.error is None, execution.error
    said = dict(line.split(" ", 1) for line in execution.logs.stdout.replace("server name", "name").splitlines())
    assert set(json.loads(said["forms"].replace("'", '"')).values()) == {"403"}
    assert said["metadata"] == "403 403"
    assert said["own"] == "200"
    # Another sandbox is served beside hundreds of connections that say nothing, and the process has not ended.
    assert await asyncio.to_thread(bed.asked, "one", bed.host) == "200 hello\n"
    statuses = [one for pod in bed.pods("egress") for one in pod["status"].get("containerStatuses", ())]
    assert {one["restartCount"] for one in statuses} == {0}
    assert said["name"] == "TLSv1.3 ended ended"
    assert said["front"] == "200 403"
    assert said["key"] == "False"
