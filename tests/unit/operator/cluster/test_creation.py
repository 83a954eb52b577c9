"""What the API server says against a create, as data."""

import pytest
from sandfleet_operator.api.kube import CONFIG_MAP, Cause, NotCreated, Ref, failure
from sandfleet_operator.cluster.creation import create
from support.fakes.kube_memory import After, Before, MemoryKube, lost_reply

REF = Ref(CONFIG_MAP, "team", "one")
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "team", "name": "one"}}
QUOTA = 'pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5'


async def a_kube():
    kube = MemoryKube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    return kube


@pytest.mark.parametrize(
    ("status", "said", "cause"),
    [
        (429, {}, Cause.BUSY),
        (403, {"reason": "Forbidden", "message": QUOTA}, Cause.QUOTA),
        (403, {"reason": "Forbidden", "message": "User cannot create pods"}, Cause.FORBIDDEN),
        (404, {"reason": "NotFound", "message": 'namespaces "team" not found'}, Cause.FORBIDDEN),
        (409, {"reason": "Conflict", "message": "cannot update resourcequotas"}, Cause.BUSY),
        (422, {"reason": "Invalid", "message": "spec is wrong"}, Cause.INVALID),
        (400, {"reason": "BadRequest"}, Cause.INVALID),
        (500, {}, Cause.BUSY),
        (504, {"reason": "Timeout"}, Cause.BUSY),
    ],
)
async def test_a_refusal_is_data(status, said, cause):
    kube = await a_kube()
    kube.fault = lambda _: Before(failure("create it", status, said, 3.0))
    found = await create(kube, OBJECT)
    assert isinstance(found, NotCreated)
    assert (found.cause, found.retry_after, found.exists) == (cause, 3.0, False)
    assert found.message.startswith("cannot create it: ")


async def test_a_name_that_is_taken_says_so():
    kube = await a_kube()
    await kube.create(OBJECT)
    found = await create(kube, OBJECT)
    assert (found.cause, found.exists) == (Cause.BUSY, True)


async def test_an_object_whose_reply_was_lost_is_found():
    kube = await a_kube()
    kube.fault = lambda _: After()
    found = await create(kube, OBJECT)
    assert found["metadata"]["uid"] == kube.cluster.objects[REF]["metadata"]["uid"]


async def test_a_create_that_did_not_arrive_is_not_created():
    kube = await a_kube()
    kube.fault = lambda _: Before(lost_reply())
    assert (await create(kube, OBJECT)).cause is Cause.BUSY
    assert REF not in kube.cluster.objects


async def test_an_object_that_another_account_made_is_none_whose_reply_was_lost():
    kube, labels = await a_kube(), {"app": "mine"}
    await kube.create({**OBJECT, "data": {"made": "by another one"}})
    kube.fault = lambda _: Before(lost_reply())
    found = await create(kube, {**OBJECT, "metadata": {**OBJECT["metadata"], "labels": labels}})
    assert isinstance(found, NotCreated)
    assert (found.cause, found.exists) == (Cause.BUSY, True)
