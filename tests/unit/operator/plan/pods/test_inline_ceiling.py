"""Inline templates under the installation's ceiling. Each row of the tables is a sentence."""

import math
from dataclasses import replace

import pytest
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import sandbox_template
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from support.operator.builders import IMAGE, SETTINGS
from support.operator.crd_strategies import an_object

MIB, GIB = 1 << 20, 1 << 30


def under(ceiling: dict, inline: dict, **spec: object) -> Effective | Refusal:
    """`ceiling` is the Helm value settings.inline, `inline` and the rest are a CodeSandbox's spec."""
    allowed = Settings.parse({"controlPlaneNamespace": "sandfleet-system", "inline": ceiling}).inline
    sandbox = code_sandbox(an_object("CodeSandbox", {"inline": {"image": IMAGE, **inline}, **spec}))
    return effective(None, sandbox.spec, replace(SETTINGS, inline=allowed))


def limits(**values: object) -> dict:
    return {"resources": {"limits": values}}


def storage(size: str) -> dict:
    return limits(**{"ephemeral-storage": size})


def memory(result: Effective) -> tuple:
    return result.resources.memory // MIB, result.requests.memory // MIB, result.limits.memory_bytes // MIB


GETS = [
    ("who writes nothing gets a template's defaults", {}, {}, memory, (2048, 512, 1856)),
    ("who writes nothing under a low ceiling gets the ceiling", limits(memory="1Gi"), {}, memory, (1024, 512, 832)),
    ("and a request that fits below it", limits(memory="256Mi"), {}, memory, (256, 256, 64)),
    ("who writes nothing under a high ceiling gets the default and not the ceiling", limits(memory="64Gi"), {}, memory, (2048, 512, 1856)),
    ("who writes more than the default and less than the ceiling gets it", limits(memory="64Gi"), limits(memory="8Gi"), memory, (8192, 512, 8000)),
    ("a request above the limit is the limit", {}, {"resources": {"requests": {"memory": "4Gi"}}}, memory, (2048, 2048, 1856)),
    ("half a core is what an unwritten cpu comes to where no more is allowed", limits(cpu="500m"), {}, lambda r: (r.resources.cpu, r.requests.cpu), (0.5, 0.25)),
    ("and so with disk", storage("512Mi"), {}, lambda r: (r.resources.ephemeral_storage // MIB, r.requests.ephemeral_storage // MIB), (512, 512)),
    ("and with the workspace", {"workspace": {"size": "100Mi"}}, {}, lambda r: r.workspace.size // MIB, 100),
    ("a workspace is 1Gi where more is allowed", {"workspace": {"size": "50Gi"}}, {}, lambda r: r.workspace.size // MIB, 1024),
    ("an unwritten number of processes is lowered", {"executionLimits": {"processes": 64}}, {}, lambda r: r.limits.processes, 64),
    ("an unwritten timeout is lowered, and the default one with it", {"executionLimits": {"maxTimeoutSeconds": 60}}, {}, lambda r: (r.limits.max_timeout, r.limits.default_timeout), (60.0, 60.0)),
    ("a written longest timeout lowers the default one", {}, {"executionLimits": {"maxTimeoutSeconds": 60}}, lambda r: (r.limits.max_timeout, r.limits.default_timeout), (60.0, 60.0)),
    ("no longest timeout where the installation has none", {"executionLimits": {"maxTimeoutSeconds": 0}}, {"executionLimits": {"maxTimeoutSeconds": 0}}, lambda r: (r.limits.max_timeout, r.limits.default_timeout), (math.inf, 300.0)),
    ("an unwritten longest timeout is the default under a ceiling without one", {"executionLimits": {"maxTimeoutSeconds": 0}}, {}, lambda r: r.limits.max_timeout, 3600.0),
    ("unwritten contracts are the installation's, and its first one counts", {"contracts": ["Reviewed", "Brokered"]}, {}, lambda r: r.contract.value, "reviewed"),
    ("an unset lifetime is the longest allowed", {"maxLifetimeSeconds": 60}, {}, lambda r: r.lifetime, 60.0),
    ("unset egress is none, even if the ceiling allows some", {"egress": {"allow": [{"cidr": "203.0.113.0/24"}]}}, {}, lambda r: r.egress.allow, ()),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "ceiling", "inline", "look", "expected"), GETS, ids=[row[0] for row in GETS])
def test_under_a_ceiling(sentence, ceiling, inline, look, expected) -> None:
    result = under(ceiling, inline)
    assert isinstance(result, Effective), result
    assert look(result) == expected


REFUSED = [
    ("memory", limits(memory="1Gi"), limits(memory="2Gi"), "AboveTemplate", "cannot set resources.limits.memory to 2048Mi: the installation allows 1024Mi"),
    ("cpu", {}, limits(cpu=2), "AboveTemplate", "cannot set resources.limits.cpu to 2: the installation allows 1"),
    ("disk", {}, storage("5Gi"), "AboveTemplate", "cannot set resources.limits.ephemeral-storage to 5120Mi: the installation allows 4096Mi"),
    ("the workspace", {}, {"workspace": {"size": "2Gi"}}, "AboveTemplate", "cannot set workspace.size to 2048Mi: the installation allows 1024Mi"),
    ("a limit of the executor", {}, {"executionLimits": {"executions": 33}}, "AboveTemplate", "cannot set executionLimits.executions to 33: the installation allows 32"),
    ("no longest timeout", {}, {"executionLimits": {"maxTimeoutSeconds": 0}}, "AboveTemplate", "cannot set executionLimits.maxTimeoutSeconds to 0 (no longest one): the installation allows 3600"),
    ("a lifetime", {"maxLifetimeSeconds": 60}, {"maxLifetimeSeconds": 61}, "AboveTemplate", "cannot set maxLifetimeSeconds to 61: the installation allows 60"),
    ("a storage class", {"workspace": {"storageClassName": "slow"}}, {"workspace": {"storageClassName": "fast"}}, "AboveTemplate", "cannot set workspace.storageClassName to 'fast': the installation allows 'slow'"),
    ("a contract", {}, {"contracts": ["Reviewed"]}, "ContractNotAllowed", "cannot take contract Reviewed: the installation allows Autonomous"),
    ("egress", {}, {"egress": {"dns": True}}, "EgressNotAllowed", "cannot allow egress to name resolution: the installation does not allow it"),
    ("an image", {}, {"image": "docker.example/x:1"}, "ImageNotAllowed", "cannot make a sandbox: image 'docker.example/x:1' is not on the installation's list (Helm value allowedImages)"),
    ("memory that is not enough for the executor", {}, limits(memory="100Mi"), "InvalidSpec", "cannot run with resources.limits.memory of 100 MiB: the executor and its runtime need 256 MiB before anything else runs"),
    ("a workspace in the pod that does not fit in it", {}, {"workspace": {"ephemeral": True}, **storage("1Gi")}, "InvalidSpec", "cannot make a sandbox: an ephemeral workspace needs ephemeral-storage of 1152Mi, and it has 1024Mi"),
    ("a ceiling under which nothing can run is the platform team's mistake", limits(memory="100Mi"), {}, "TemplateInvalid", "cannot run with resources.limits.memory of 100 MiB"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "ceiling", "inline", "reason", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_values_above_the_ceiling_are_refused_with_a_message(what, ceiling, inline, reason, message) -> None:
    result = under(ceiling, inline)
    assert isinstance(result, Refusal), result
    assert (result.reason.value, result.message[: len(message)]) == (reason, message)


# The same for a named template: its own defaults under its own maxima.

NAMED = [
    ("a sandbox that asks for nothing gets the low maximum", limits(memory="256Mi", cpu="100m"), {}, lambda r: (r.resources.memory // MIB, r.requests.memory // MIB, r.requests.cpu), (256, 256, 0.1)),
    ("a default timeout above the longest is the longest", {"executionLimits": {"maxTimeoutSeconds": 10}}, {}, lambda r: r.limits.default_timeout, 10.0),
    ("a sandbox that lowers the longest lowers the default", {}, {"executionLimits": {"maxTimeoutSeconds": 10}}, lambda r: r.limits.default_timeout, 10.0),
    ("a sandbox that lowers memory lowers what is set aside", {}, {"resources": {"limits": {"memory": "256Mi"}}}, lambda r: r.requests.memory // MIB, 256),
]  # fmt: skip


def of_template(template: dict, spec: dict) -> Effective | Refusal:
    written = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, **template})).spec
    return effective(
        written, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}, **spec})).spec, SETTINGS
    )


@pytest.mark.parametrize(("sentence", "template", "spec", "look", "expected"), NAMED, ids=[row[0] for row in NAMED])
def test_under_a_template(sentence, template, spec, look, expected) -> None:
    result = of_template(template, spec)
    assert isinstance(result, Effective), result
    assert look(result) == expected


@pytest.mark.parametrize(
    ("template", "spec", "reason", "message"),
    [
        (storage("1Gi") | {"workspace": {"ephemeral": True}}, {}, "TemplateInvalid", "cannot use the template: an ephemeral workspace needs ephemeral-storage of 1152Mi, and it has 1024Mi"),
        ({"workspace": {"ephemeral": True}}, {"resources": {"limits": {"ephemeral-storage": "1Gi"}}}, "InvalidSpec", "cannot make a sandbox: an ephemeral workspace needs ephemeral-storage of 1152Mi, and it has 1024Mi"),
    ],
)  # fmt: skip
def test_a_workspace_in_the_pod_has_to_fit_in_it(template, spec, reason, message) -> None:
    result = of_template(template, spec)
    assert isinstance(result, Refusal), result
    assert (result.reason.value, result.message) == (reason, message)
    smaller = of_template(template, {**spec, "workspace": {"size": "512Mi"}})
    assert isinstance(smaller, Effective) == (reason == "InvalidSpec")
