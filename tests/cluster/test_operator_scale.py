"""The operator with many sandboxes: killed while it makes them, leaving nothing, and hundreds on pretended nodes.

SANDFLEET_SCALE is the number of those (300), SANDFLEET_PASSING that of the ones in gVisor that come and go (40),
SANDFLEET_KILLS that of kills (50); SANDFLEET_SEED chooses their moments. A figure is printed with the machine's load.
"""

import os
import random
import statistics
import time

import pytest
from cluster.many import (
    PODS_PER_NODE,
    Heartbeat,
    Lags,
    Made,
    create,
    delete,
    fake_template,
    ready,
    volumes,
    volumes_by_hand,
    wait_gone,
    wait_ready,
    watched,
)
from cluster.operator_forks import lives
from cluster.operators import Sandboxes, operator
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD

pytestmark = pytest.mark.scale

KILLS = int(os.environ.get("SANDFLEET_KILLS", "50"))
SANDBOXES_PER_KILL = 2
# Not ready yet, while the next one is killed.
BACKLOG = 12
PASSING = int(os.environ.get("SANDFLEET_PASSING", "40"))
AT_ONCE = 16
SCALE = int(os.environ.get("SANDFLEET_SCALE", "300"))


@pytest.fixture
def say(capsys):
    """Shown however the test ends."""

    def show(text):
        with capsys.disabled():
            print(f"\n  {text} (load {os.getloadavg()[0]:.1f})", end="")

    return show


def moments(seed):
    """Whether each kill is counted from the start of the process or from its leadership, and after how many seconds."""
    chance = random.Random(seed)
    for _ in range(KILLS):
        leading = chance.random() < 0.8
        yield leading, chance.uniform(0.0, 1.5 if leading else 0.3)


@pytest.mark.timeout(600)
def test_an_operator_that_is_killed_again_and_again_makes_each_sandbox_once(cluster, fake_nodes, tmp_path, say):
    seed = int(os.environ.get("SANDFLEET_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    say(f"SANDFLEET_SEED={seed}")
    pods, claims = Made(), Made()
    fake_nodes(1)
    with operator(cluster, tmp_path / "operator", fake_template(), fakes=True) as one:
        sandboxes = Sandboxes(cluster, one.namespaces[0])
        names = [f"s-{number}" for number in range(KILLS * SANDBOXES_PER_KILL)]
        with (
            volumes_by_hand(sandboxes, names),
            watched(cluster, POD, sandboxes.namespace, pods.saw),
            watched(cluster, PERSISTENT_VOLUME_CLAIM, sandboxes.namespace, claims.saw),
            lives(one) as operators,
        ):
            began, led = time.monotonic(), 0
            for number, (leading, seconds) in enumerate(moments(seed)):
                create(sandboxes, names[number * SANDBOXES_PER_KILL :][:SANDBOXES_PER_KILL])
                operators.begin()
                if leading:
                    one.wait_leading(led + 1)
                    wait_for_fewer(sandboxes, BACKLOG)
                time.sleep(seconds)
                operators.kill()
                one.bury()
                led = one.led
            say(f"{KILLS} kills in {time.monotonic() - began:.0f} s, {len(ready(sandboxes))} were ready by then")
            operators.begin()
            wait_ready(sandboxes, names, 300)
            say(f"{len(names)} sandboxes ready after {time.monotonic() - began:.0f} s")
            check_each_was_made_once(sandboxes, names, pods, claims)
            delete(sandboxes, names)
            cluster.api.wait(
                "the pods and claims to go",
                lambda: sandboxes.count("Pod") + sandboxes.count("PersistentVolumeClaim") == 0,
                120,
            )
            wait_closed(sandboxes)


def wait_for_fewer(sandboxes, most):
    """Kills are to meet pods that start, not pods that wait for their turn."""
    sandboxes.cluster.api.wait(
        "sandboxes to become ready", lambda: sandboxes.count("CodeSandbox") - len(ready(sandboxes)) <= most, 120
    )


def check_each_was_made_once(sandboxes, names, pods, claims):
    assert set(pods.uids) == set(names)
    assert pods.counts == {1}, "a sandbox had two pods"
    assert (len(claims.uids), claims.counts) == (len(names), {1})
    for found in sandboxes.cluster.api.list("CodeSandbox", sandboxes.namespace):
        status = found["status"]
        assert pods.uids[found["metadata"]["name"]] == [status["podUID"]]
        assert (status["restarts"], status.get("restartHistory", [])) == (0, [])


def wait_closed(sandboxes):
    """The namespace stays closed for half a minute after its last sandbox and template; then it is as before."""
    api, where = sandboxes.cluster.api, sandboxes.namespace
    for found in api.list("SandboxTemplate", where):
        api.delete("SandboxTemplate", found["metadata"]["name"], where)
    api.wait("the policies to go", lambda: sandboxes.count("NetworkPolicy") == 0, 60)
    assert [one["metadata"]["name"] for one in api.list("ConfigMap", where)] == ["kube-root-ca.crt"]
    assert sandboxes.count("Secret") == 0


@pytest.mark.timeout(900)
def test_deleted_sandboxes_leave_nothing(images, tmp_path, say):
    """In gVisor, a dozen at a time; each is deleted when it is ready."""
    pods = Made()
    with operator(images, tmp_path) as one:
        one.start()
        sandboxes = Sandboxes(images, one.namespaces[0])
        coming, there, began = [f"s-{number}" for number in range(PASSING)], set(), time.monotonic()
        with watched(images, POD, sandboxes.namespace, pods.saw):
            while coming or there:
                one.revive()
                done = ready(sandboxes) & there
                delete(sandboxes, sorted(done))
                there -= done
                room = max(0, AT_ONCE - max(sandboxes.count("Pod"), len(there)))
                new, coming = coming[:room], coming[room:]
                create(sandboxes, new)
                there |= set(new)
                time.sleep(0.5)
                assert time.monotonic() - began < 800, f"{len(there)} are not ready: {there}"
            say(f"{PASSING} sandboxes came and went in {time.monotonic() - began:.0f} s")
            wait_gone(sandboxes)
        assert (len(pods.uids), pods.counts) == (PASSING, {1})
        wait_closed(sandboxes)
        assert volumes(images, sandboxes.namespace) == []
        kept = images.on_node("ls", str(images.layout.root / "volumes"))
        assert sandboxes.namespace not in kept


@pytest.mark.timeout(1200)
def test_hundreds_of_sandboxes_on_pretended_nodes_become_ready_and_are_deleted(cluster, fake_nodes, tmp_path, say):
    """Prints what the operator needs for them."""
    fake_nodes(SCALE // PODS_PER_NODE + 1)
    names = [f"s-{number}" for number in range(SCALE)]
    pods, lags = Made(), Lags()
    with operator(cluster, tmp_path, fake_template(), fakes=True) as one:
        one.start().wait_leading()
        sandboxes = Sandboxes(cluster, one.namespaces[0])
        heartbeat = Heartbeat(sandboxes)
        with volumes_by_hand(sandboxes, names), heartbeat.beating():
            before = one.memory()
            with (
                watched(cluster, POD, sandboxes.namespace, pods.saw),
                watched(cluster, CODE_SANDBOX, sandboxes.namespace, lags.saw),
            ):
                began, revived = time.monotonic(), 0
                create(sandboxes, names)
                while len(lags.ready) < SCALE:
                    # On a machine that is too busy for it, it may lose its Lease.
                    revived += one.revive()
                    assert time.monotonic() - began < 600, f"{len(lags.ready)} of {SCALE} are ready"
                    time.sleep(0.2)
            grown = one.memory() - before
            assert (len(pods.uids), pods.counts) == (SCALE, {1})
            say(f"SANDFLEET_SCALE={SCALE}: {lags.rate:.1f} sandboxes/s became ready")
            say(f"object to Ready: p50 {at(lags.seconds, 0.5):.1f} s, p99 {at(lags.seconds, 0.99):.1f} s")
            say(
                f"change of a spec to its status: p50 {at(heartbeat.lags, 0.5):.2f} s, most {max(heartbeat.lags):.2f} s"
            )
            say(f"operator: {before / 1e6:.0f} MB, and {grown / 1e6 / SCALE * 1000:.0f} MB per 1,000 sandboxes")
            say(f"the operator was started again {revived} times")
            delete(sandboxes, names)
            cluster.api.wait("the pods to go", lambda: sandboxes.count("Pod") == 0, 300)
            cluster.api.wait("the claims to go", lambda: sandboxes.count("PersistentVolumeClaim") == 0, 300)


def at(samples, share):
    return statistics.quantiles(samples, n=100, method="inclusive")[round(share * 100) - 1]
