"""The first command of each section of docs/howto/alerts.md, typed while its fault is there: it shows the cause.

That the alerts fire by these faults is tested with a Prometheus, in tests/transition/telemetry/test_alerts.py.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from chart.helm_chart import ROOT
from cluster.access_bed import an_object
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.operators import IMAGE as EXECUTOR
from cluster.operators import RESTRICTED_LABELS, sandbox, template
from cluster.releases import IMAGE, SANDBOX_IMAGE, Release

pytestmark = [pytest.mark.usefixtures("kinds"), pytest.mark.timeout(900)]
PAGE = (ROOT / "docs/howto/alerts.md").read_text()
FIRST = dict(re.findall(r"(?ms)^## (\w+)\n.*?^```bash\n(.*?)[ ]*(?:#[^\n]*)?\n", PAGE))
# How long a fault may take to be seen, in seconds: a look of the operator, a pull that fails.
SEEN = 180
# A full disk, or a log that nothing reads, is not to be had in a pod: tests/unit/operator/telemetry has that fault.
ELSEWHERE = {"SandfleetAuditRecordsLost"}
# A processor limit that both processes meet while they start.
SHORT = ("--set", "operator.resources.limits.cpu=200m,fleet.resources.limits.cpu=200m")
CLAIM = """
import json, sys
from sandfleet import Sandbox
Sandbox.create(**json.loads(sys.argv[1]))
"""


@dataclass
class Scene:
    """A release of the chart, a team's namespace, and a shell in which the page's commands run."""

    cluster: Cluster
    release: Release
    team: str

    @property
    def environment(self) -> dict[str, str]:
        programs = (str(Path(self.cluster.programs["kubectl"]).parent), str(Path(sys.executable).parent))
        return os.environ | {
            "PATH": ":".join((*programs, os.environ["PATH"])),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "SANDFLEET_KUBECTL": str(self.cluster.programs["kubectl"]),
            "SANDFLEET_NAMESPACE": self.release.namespace,
        }

    def typed(self, alert: str, names: dict[str, str]) -> str:
        """What the section's first command prints, errors included."""
        line = FIRST[alert].replace("sandfleet-system", self.release.namespace)
        for name, value in {"TEAM": self.team, **names}.items():
            line = re.sub(rf"\b{name}\b", value, line)
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, env=self.environment, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def shown(self, alert: str, pattern: str, **names: str) -> str:
        """Empty when the command prints what the pattern asks for, else what it printed."""
        deadline = time.monotonic() + SEEN
        while not re.search(pattern, said := self.typed(alert, names)):
            if time.monotonic() > deadline:
                return f"{alert} does not show {pattern!r}: {said[-600:]}"
            time.sleep(1.0)
        return ""

    def pod(self, component: str) -> str:
        found = (one["metadata"] for one in self.cluster.api.list("Pod", self.release.namespace))
        return next(one["name"] for one in found if one["labels"].get("app.kubernetes.io/component") == component)

    def make(self, kind: str, name: str, **spec: object) -> None:
        self.cluster.api.create(an_object("sandfleet.io/v1alpha1", kind, name, self.team, spec=spec))

    @contextmanager
    def claiming(self, **options: object) -> Iterator[None]:
        """A client that claims, and waits."""
        command = [sys.executable, "-c", CLAIM, json.dumps({"namespace": self.team, **options})]
        with subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.kill()

    @contextmanager
    def without_rights(self, component: str) -> Iterator[None]:
        """In the team's namespace."""
        kubectl = self.cluster.kubectl
        bindings = json.loads(kubectl("get", "rolebindings", "-n", self.team, "-o", "json"))["items"]
        account = f"{self.release.prefix}-{component}"
        (taken,) = [one for one in bindings if any(who["name"] == account for who in one.get("subjects", ()))]
        kubectl("delete", "rolebinding", taken["metadata"]["name"], "-n", self.team)
        try:
            yield
        finally:
            taken["metadata"] = {key: taken["metadata"][key] for key in ("name", "namespace")}
            kubectl("create", "-f", "-", given=json.dumps(taken))


@pytest.fixture
def scene(images: Cluster, helm: Callable[..., str], new_namespace: Callable[..., str]) -> Iterator[Scene]:
    team = new_namespace(RESTRICTED_LABELS)
    release = Release(images, helm, f"box-{secrets.token_hex(3)}", new_namespace())
    watched = f"settings.watchNamespaces={{{team}}},crds.enabled=false"
    release.install(*IMAGE, *SANDBOX_IMAGE, *SHORT, "--set", watched, "--wait")
    images.api.create(template(team))
    role, account = f"--clusterrole={release.prefix}-agent", f"--serviceaccount={team}:default"
    images.kubectl("create", "rolebinding", "agents", role, account, "--namespace", team)
    yield Scene(images, release, team)
    with suppress(ClusterError):
        release.uninstall()


def test_the_first_command_of_each_section_shows_the_cause(scene: Scene):
    api, team = scene.cluster.api, scene.team
    faults = []
    with ExitStack() as stack:
        # A pool whose image is not there, and a claim that waits at it.
        missing = EXECUTOR.replace(":dev", ":missing")
        api.create(template(team, "broken", image=missing))
        scene.make("SandboxPool", "broken", templateRef={"name": "broken"}, replicas=1, maxSize=1)
        scene.make("SandboxPool", "fast", templateRef={"name": "python"}, replicas=1)
        scene.make("SandboxQueue", "held", nominalQuota={"sandboxes": 1}, stopPolicy="Hold")
        stack.enter_context(scene.claiming(pool="broken", max_wait=600))
        stack.enter_context(scene.claiming(template="python", queue="held", max_wait=600))
        stack.enter_context(scene.claiming(pool="nowhere"))
        # A sandbox that misses its template, and one that a policy of others opens.
        api.create(sandbox(team, "lost", templateRef={"name": "nowhere"}))
        api.create(sandbox(team, "open"))
        opens = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
        api.create(an_object("networking.k8s.io/v1", "NetworkPolicy", "opens", team, spec=opens))
        image = r"ErrImage|ImagePull|sandfleet-executor:missing"
        faults += [
            scene.shown("SandfleetPoolBelowTarget", image, POOL="broken"),
            scene.shown("SandfleetPoolExhausted", image, POOL="broken"),
            scene.shown("SandfleetClaimsWait", rf"{team}\s+broken\s.*\b1\b.*"),
            scene.shown(
                "SandfleetClaimsRefused",
                rf'"verdict":"refused".*"namespace":"{team}"|"namespace":"{team}".*"verdict":"refused"',
            ),
            scene.shown("SandfleetQueueStuck", r"held\b.*\b1\b"),
            scene.shown("SandfleetSandboxesDegraded", rf"{team}\s+lost\b"),
            scene.shown("SandfleetSandboxesOpen", rf"(?m)^{team}/open$"),
            scene.shown("SandfleetEventLoopBlocked", r"nr_throttled [1-9]", POD=scene.pod("fleet")),
            scene.shown("SandfleetReconcileLag", r"nr_throttled [1-9]", POD=scene.pod("operator")),
            scene.shown("SandfleetAbsent", r"podmonitor|No resources found"),
        ]
    with scene.without_rights("operator"):
        api.create(sandbox(team, "unheard"))
        faults.append(scene.shown("SandfleetReconcileErrors", rf"cannot finish.*{team}/unheard.*forbidden"))
    with scene.without_rights("fleet"):
        scene.cluster.kubectl("patch", "sbp/fast", "-n", team, "--type=merge", "-p", '{"spec":{"replicas":2}}')
        faults.append(scene.shown("SandfleetApiWritesFail", r"cannot .*forbidden"))
    scene.cluster.kubectl(
        "scale", f"deployment/{scene.release.prefix}-fleet", "--replicas=0", "-n", scene.release.namespace
    )
    none = rf"(?s)\A(?!.*pod/{scene.release.prefix}-fleet-).*pod/{scene.release.prefix}-operator-"
    faults.append(scene.shown("SandfleetNoLeader", none))
    assert [one for one in faults if one] == []


def test_each_section_has_its_fault_here():
    played = set(re.findall(r'scene\.shown\(\s*"(\w+)"', Path(__file__).read_text()))
    assert played | ELSEWHERE == set(FIRST)
