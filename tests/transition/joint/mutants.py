"""The mends that the world watches over, and how each is taken out: by another value of its smallest function."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any
from unittest import mock

from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_POOL
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.cluster import elector
from sandfleet_operator.plan.claims import record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.reconciler import housekeeping
from transition.joint import scenarios
from transition.joint.scenarios import Scenario


@dataclass(frozen=True)
class Mutant:
    """Finds the defect `point` of issue 16 by `scenario`. Each patch is a target and what stands there without mend."""

    point: str
    scenario: Scenario
    patches: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, value in self.patches:
                stack.enter_context(mock.patch.object(target, name, value))
            yield


def _unchecked(kind: Callable[..., Any], said: dict[str, Any], _path: str) -> Any:
    """Reads a record without a look at its types."""
    known = {one.name for one in fields(record.Record)}
    given = {name: value for name, value in said.items() if name in known}
    given["lease"] = math.inf if given.get("lease") is None else float(given["lease"])
    given["limits"] = Limits(**given.get("limits", {}))
    try:
        return kind(**given)
    except TypeError as error:
        raise json.JSONDecodeError(str(error), "", 0) from error


MUTANTS = (
    Mutant("A.1", scenarios.an_annotation_of_any_content, ((record, "decode", _unchecked),)),
    Mutant("A.8", scenarios.a_reinstallation, ((elector, "next_number", lambda last, _seen: last + 1),)),
    Mutant(
        "B.1",
        scenarios.a_claim_in_an_empty_namespace,
        ((housekeeping, "INHABITANTS", {CODE_SANDBOX: "", SANDBOX_POOL: "", POD: names.SANDBOX_SELECTOR}),),
    ),
)
