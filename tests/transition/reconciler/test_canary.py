"""A secret in what an owner writes is in no Event, no condition and no log line of the operator."""

import json

import pytest
from sandfleet_operator.api.kube import EVENT
from transition.fake_time import run
from transition.world import World

CANARY = "canary-8e21"


def said_of(caplog, annotations, **spec):
    """Events, status and log lines of a sandbox."""
    said = []

    async def go() -> None:
        async with World() as here:
            await here.make_sandbox(annotations=annotations, **spec)
            await here.until(lambda: here.reason() != "", "told how it is")
            said.extend(one for ref, one in here.cluster.objects.items() if ref.kind == EVENT)
            said.append(here.status())

    run(go())
    return json.dumps(said, default=str) + caplog.text


@pytest.mark.parametrize(
    ("spec", "annotations"),
    [
        ({"env": [{"name": "API_KEY", "value": CANARY}]}, {"note": CANARY, "sandfleet.io/traceparent": CANARY}),
        ({"env": [{"name": "BAD NAME", "value": CANARY}]}, {"sandfleet.io/contract": CANARY}),
        ({"templateRef": {"name": "missing"}, "env": [{"name": "A", "value": CANARY}]}, {}),
    ],
)
def test_no_secret_of_an_owner_is_in_events_conditions_or_logs(spec, annotations, caplog):
    text = said_of(caplog, annotations, **spec)
    assert "conditions" in text
    assert CANARY not in text


def test_a_name_that_an_owner_gives_is_in_them(caplog):
    """The control: it is where a secret would be found."""
    assert CANARY in said_of(caplog, {}, templateRef={"name": CANARY})
