"""What code in a sandbox can reach. Each probe works as soon as the defence is off: that is the control."""

import json
import secrets
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from cluster.operators import OperatorProcess, Sandboxes, python, template

# Tries TCP connections and one DNS question over UDP, side by side; prints which of them succeed.
PROBE = """
import json, socket, sys, threading
targets = json.loads(TARGETS)
said = {}
def tcp(name, host, port):
    try:
        socket.create_connection((host, port), 3).close()
        said[name] = True
    except OSError:
        said[name] = False
def dns(name, host, port):
    question = b'\\x12\\x34\\x01\\x00\\x00\\x01' + b'\\x00' * 6 + b'\\x0akubernetes\\x07default\\x03svc\\x07cluster\\x05local\\x00\\x00\\x01\\x00\\x01'
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.settimeout(3)
    try:
        one.sendto(question, (host, port))
        said[name] = one.recv(512)[:2] == b'\\x12\\x34'
    except OSError:
        said[name] = False
threads = [threading.Thread(target=dns if name == 'DNS' else tcp, args=(name, *where)) for name, where in targets.items()]
[one.start() for one in threads]
[one.join() for one in threads]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    api = images.api
    names = [f"network-{kind}-{secrets.token_hex(4)}" for kind in ("home", "work")]
    for name in names:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), names[0], (names[1],)).start()
    yield operator
    operator.end()
    for name in names:
        api.delete("Namespace", name)


@contextmanager
def listener(host):
    """A port of this machine, at an address that counts as a stranger's."""
    with socket.create_server((host, 0)) as server:
        server.settimeout(0.2)
        over = threading.Event()

        def accept():
            while not over.is_set():
                try:
                    server.accept()[0].close()
                except OSError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        thread.join()


def reached(sandboxes, name, targets):
    return json.loads(python(sandboxes, name, PROBE.replace("TARGETS", repr(json.dumps(targets)))))


def test_a_sandbox_reaches_nothing_until_its_policy_is_taken_away(bed):
    sandboxes = Sandboxes(bed.cluster, bed.namespaces[0])
    api, addresses = bed.cluster.api, bed.cluster.addresses
    api.create(template(sandboxes.namespace))
    for name in ("one", "other"):
        sandboxes.create(name)
    other = sandboxes.ready("other")["address"].rpartition(":")
    sandboxes.ready("one")
    stranger = addresses.outside[0]
    with listener(stranger) as port:
        targets = {
            "another sandbox's executor": (other[0], int(other[2])),
            "the API server's Service": (addresses.kubernetes_service, 443),
            "the API server": (addresses.node, 6443),
            "the kubelet": (addresses.node, 10250),
            "the world": (stranger, port),
            "DNS": (addresses.dns_service, 53),
        }
        assert reached(sandboxes, "one", targets) == dict.fromkeys(targets, False)
        # The control: with no operator to restore it, and the policy gone.
        bed.kill()
        api.delete("NetworkPolicy", "sandfleet-default-deny", sandboxes.namespace)
        time.sleep(1)
        assert reached(sandboxes, "one", targets) == dict.fromkeys(targets, True)
        # An operator that comes closes it again before anything else.
        bed.start()
        api.wait("the policy", lambda: bool(api.list("NetworkPolicy", sandboxes.namespace)), 60)
        time.sleep(1)
        assert reached(sandboxes, "one", targets) == dict.fromkeys(targets, False)


def test_egress_opens_what_it_names_and_follows_its_template(bed):
    sandboxes = Sandboxes(bed.cluster, bed.namespaces[0])
    api, strangers = bed.cluster.api, bed.cluster.addresses.outside
    with listener(strangers[0]) as port, listener(strangers[1]) as second:
        targets = {"named": (strangers[0], port), "not named": (strangers[1], second)}
        allow = {"allow": [{"cidr": f"{strangers[0]}/32", "ports": [{"protocol": "TCP", "port": port}]}]}
        api.create(template(sandboxes.namespace, "open", egress=allow))
        sandboxes.create("open", templateRef={"name": "open"})
        sandboxes.create("closed", templateRef={"name": "open"}, egress={"allow": []})
        sandboxes.ready("open")
        sandboxes.ready("closed")
        assert reached(sandboxes, "open", targets) == {"named": True, "not named": False}
        assert reached(sandboxes, "closed", targets) == {"named": False, "not named": False}
        api.apply(template(sandboxes.namespace, "open", egress={"allow": []}))
        api.wait(
            "the policy to go",
            lambda: "sandfleet-egress-open" not in _names(api, sandboxes.namespace),
            10,
        )
        time.sleep(1)
        assert reached(sandboxes, "open", targets) == {"named": False, "not named": False}


def _names(api, namespace):
    return {one["metadata"]["name"] for one in api.list("NetworkPolicy", namespace)}
