"""The pods of reviewed sandboxes, as the watch shows them."""

from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.kube import Json
from sandfleet_operator.plan.pods import names


class ReviewedPods:
    """By namespace and name, with the name of the sandbox that each was made for."""

    def __init__(self) -> None:
        self.sandboxes: dict[tuple[str, str], str] = {}

    def saw(self, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        labels = meta.get("labels") or {}
        key = (meta["namespace"], meta["name"])
        if not gone and labels.get(names.CONTRACT) == Contract.REVIEWED.value:
            self.sandboxes[key] = labels.get(names.SANDBOX, "")
        else:
            self.sandboxes.pop(key, None)
