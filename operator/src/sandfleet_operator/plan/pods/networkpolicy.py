"""NetworkPolicies: default deny for all sandboxes of a namespace, and policies that open egress.

Some limits depend on the CNI: a pod's own node always reaches the pod, and on many clusters addresses of nodes and
services cannot be excluded as destinations once they are translated.
"""

from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kinds.template import Egress, EgressRule, Port, SandboxTemplate
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import egress as networks
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.remembered import remembered

NAMESPACE_NAME = "kubernetes.io/metadata.name"


def default_deny(namespace: str, settings: Settings) -> dict[str, Any]:
    """No egress but to the egress process. Ingress to the executor's port only, from the control plane and clients.

    The egress process asks for the certificate of an executor: what user code sends it there leads nowhere.
    """
    client = {"matchLabels": {settings.client_label: "true"}}
    peers = [
        {
            "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: settings.control_plane_namespace}},
            "podSelector": {"matchLabels": {names.PART_OF: names.PRODUCT}},
        },
        {"namespaceSelector": client, "podSelector": client},
        {"podSelector": client},
    ]
    spec = {
        "podSelector": {"matchLabels": {names.COMPONENT: names.SANDBOX_COMPONENT}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": [{"protocol": "TCP", "port": settings.executor_port}]}],
        "egress": [_egress_process(settings)] if settings.egress.service else [],
    }
    return _policy(namespace, names.DEFAULT_DENY, spec)


def _egress_process(settings: Settings) -> dict[str, Any]:
    peer = {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: settings.control_plane_namespace}},
        "podSelector": {"matchLabels": {names.COMPONENT: names.EGRESS_COMPONENT}},
    }
    return {"to": [peer], "ports": [{"protocol": "TCP", "port": settings.egress.port}]}


@remembered
def template_egress(template: SandboxTemplate, settings: Settings) -> dict[str, Any] | None:
    """What the sandboxes of one template may reach; None if that is nothing. Deleted with the template."""
    spec = template.spec.egress
    if networks.allows_nothing(spec):
        return None
    selected = {names.EGRESS_CLASS: names.bounded(template.meta.name)}
    owner = names.owned_by("SandboxTemplate", template.meta)
    policy = _policy(
        template.meta.namespace, names.class_policy(template.meta.name), _opening(selected, spec, settings)
    )
    return _owned(policy, owner)


def own_egress(sandbox: CodeSandbox, wanted: Egress, settings: Settings) -> dict[str, Any] | None:
    """What a sandbox with a list of its own may reach; None if that is nothing. Deleted with the sandbox."""
    if networks.allows_nothing(wanted):
        return None
    selected = {names.EGRESS_OWN: sandbox.meta.name}
    owner = names.owned_by("CodeSandbox", sandbox.meta)
    policy = _policy(sandbox.meta.namespace, names.own_policy(sandbox.meta.name), _opening(selected, wanted, settings))
    return _owned(policy, owner)


def _opening(selected: Mapping[str, str], wanted: Egress, settings: Settings) -> dict[str, Any]:
    """The spec of a policy that opens the wanted networks without the blocked ones."""
    forbidden = networks.blocked(settings.blocked_cidrs)
    allowed = (networks.without(rule, forbidden) for rule in wanted.allow)
    rules = [_rule(rule) for rule in allowed if rule is not None]
    if wanted.dns:
        rules.append(_dns(settings))
    return {
        "podSelector": {"matchLabels": {names.COMPONENT: names.SANDBOX_COMPONENT, **selected}},
        "policyTypes": ["Egress"],
        "egress": rules,
    }


def _owned(policy: dict[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**policy["metadata"], "ownerReferences": [dict(owner)]}
    return {**policy, "metadata": metadata}


def _policy(namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name, "labels": names.own_labels()},
        "spec": dict(spec),
    }


def _rule(rule: EgressRule) -> dict[str, Any]:
    block: dict[str, Any] = {"cidr": rule.cidr}
    if rule.excluded:
        block["except"] = list(rule.excluded)
    ports = {"ports": [_port(port) for port in rule.ports]} if rule.ports else {}
    return {"to": [{"ipBlock": block}], **ports}


def _port(port: Port) -> dict[str, Any]:
    value: dict[str, Any] = {"protocol": port.protocol}
    if port.port:
        value["port"] = port.port
    if port.end_port > port.port:
        value["endPort"] = port.end_port
    return value


def _dns(settings: Settings) -> dict[str, Any]:
    dns = settings.dns
    peer = {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: dns.namespace}},
        "podSelector": {"matchLabels": dict(dns.labels)},
    }
    ports = [{"protocol": protocol, "port": port} for port in dns.ports for protocol in ("UDP", "TCP")]
    return {"to": [peer], "ports": ports}
