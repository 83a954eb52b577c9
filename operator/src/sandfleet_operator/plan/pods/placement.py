"""Checks where a template places pods. The CRD's schema bounds only lengths; the API server would refuse the pod."""

from collections.abc import Mapping

from sandfleet_operator.api.errors import invalid
from sandfleet_operator.api.validate import check_label

DOING = "place pods"


def check(node_selector: Mapping[str, str], tolerations: tuple[Mapping[str, object], ...]) -> None:
    """Raises FleetError for the first invalid selector or toleration."""
    for key, value in node_selector.items():
        check_label(key, value, doing=DOING)
    for number, toleration in enumerate(tolerations):
        if why := _wrong(toleration):
            raise invalid("InvalidToleration", f"cannot {DOING}: tolerations[{number}] {why}", f"tolerations[{number}]")


def _wrong(toleration: Mapping[str, object]) -> str:
    """Why the API server would refuse the toleration; empty if it is valid."""
    key, value = str(toleration.get("key") or ""), str(toleration.get("value") or "")
    exists = toleration.get("operator") == "Exists"
    if not key and not exists:
        return "names no key, which only operator Exists may leave out"
    if exists and value:
        return "has a value, which operator Exists does not compare"
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        return "has tolerationSeconds, which only effect NoExecute may have"
    check_label(key or "any", value, doing=DOING)
    return ""
