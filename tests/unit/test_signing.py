"""The signing material: made once whoever comes first, and exchanged without a token that nobody can check."""

import asyncio
import base64
import json

import jwt
import pytest
from fakes.kube_memory import After, Before, MemoryKube
from sandfleet_executor.core.claims import TokenError
from sandfleet_executor.effects.tokens import TokenVerifier
from sandfleet_operator.api.kube import CONFIG_MAP, SECRET, Forbidden, NotFound, Ref, Unreachable
from sandfleet_operator.effects import signing
from sandfleet_operator.effects.signing import PROPAGATION, Signing, SigningError, load_or_create, read, rotate
from sandfleet_operator.effects.tokens import (
    MAX_KEYS,
    MAX_LIFETIME,
    OVERLAP,
    KeyRing,
    Signer,
    TokenKey,
    TooManyKeysError,
)
from sandfleet_operator.plan.configmaps import keys_config_map
from sandfleet_operator.plan.session import session_id

NOW = 1_800_000_000.0
NAMESPACE = "sandfleet-system"
REF = Ref(SECRET, NAMESPACE, "sandfleet-signing")
EMPTY = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE, "name": REF.name}, "type": "Opaque"}


@pytest.fixture
async def kube():
    made = MemoryKube()
    await made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return made


def kids(ring):
    return [key.kid for key in ring.keys]


# Who comes first.


@pytest.mark.parametrize("there", [None, EMPTY, {**EMPTY, "data": {}}], ids=["missing", "without data", "empty"])
async def test_what_is_missing_is_made_and_then_read(kube, there):
    if there:
        await kube.create(there)
    made = await load_or_create(kube, NAMESPACE, NOW)
    again = await load_or_create(kube, NAMESPACE, NOW + 1)
    assert again.authority.pem == made.authority.pem
    assert kids(again.tokens) == kids(made.tokens)
    assert again.resource_version == made.resource_version
    assert (await kube.get(REF))["metadata"]["resourceVersion"] == made.resource_version


@pytest.mark.parametrize("there", [None, EMPTY], ids=["missing", "empty"])
async def test_of_many_that_start_at_once_all_have_the_winners(kube, there):
    if there:
        await kube.create(there)
    clients = [MemoryKube(kube.cluster) for _ in range(8)]
    made = await asyncio.gather(*(load_or_create(client, NAMESPACE, NOW) for client in clients))
    assert len({one.authority.pem for one in made}) == 1
    assert {tuple(kids(one.tokens)) for one in made} == {tuple(kids(made[0].tokens))}
    assert sum(len(client.writes) for client in clients) > 1


@pytest.mark.parametrize("there", [None, EMPTY], ids=["missing", "empty"])
async def test_a_write_whose_reply_was_lost_is_read_back(kube, there):
    if there:
        await kube.create(there)
    before = len(kube.writes)
    kube.fault = lambda _write: After()
    made = await load_or_create(kube, NAMESPACE, NOW)
    assert read(await kube.get(REF)).authority.pem == made.authority.pem
    assert len(kube.writes) == before + 1


async def test_a_refusal_is_told(kube):
    kube.fault = lambda _write: Before(Forbidden(403, "Forbidden", "cannot create: no"))
    with pytest.raises(Forbidden):
        await load_or_create(kube, NAMESPACE, NOW)


async def test_a_server_that_never_answers_is_given_up(kube):
    kube.fault = lambda _write: Before(Unreachable(0, "Timeout", "cannot create: no answer"))
    with pytest.raises(SigningError, match="cannot write secrets/sandfleet-system/sandfleet-signing"):
        await load_or_create(kube, NAMESPACE, NOW)


def spoilt(data, **changes):
    return {
        "metadata": {"resourceVersion": "1"},
        "data": {name: value for name, value in (data | changes).items() if value is not None},
    }


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ca.key": None}, "'ca.key' is missing"),
        ({"tokens.json": None}, "'tokens.json' is missing"),
        ({"ca.crt": "*"}, "cannot use Secret"),
        ({"ca.crt": base64.b64encode(b"x").decode()}, "cannot read the certificate authority"),
        ({"tokens.json": base64.b64encode(b'{"keys": []}').decode()}, "it has no token key"),
        ({"tokens.json": base64.b64encode(b"[]").decode()}, "cannot use Secret"),
        (
            {"tokens.json": base64.b64encode(b'{"keys": [{"kid": "a", "d": "AA", "signsFrom": 1}]}').decode()},
            "cannot use",
        ),
    ],
)
async def test_material_that_cannot_be_read_is_refused_and_never_replaced(kube, changes, why):
    data = (await load_or_create(kube, NAMESPACE, NOW), (await kube.get(REF))["data"])[1]
    broken = spoilt(data, **changes)
    with pytest.raises(SigningError, match=why):
        read(broken)
    await kube.merge(REF, {"data": {name: broken["data"].get(name) for name in data}})
    writes = len(kube.writes)
    with pytest.raises(SigningError):
        await load_or_create(kube, NAMESPACE, NOW)
    assert len(kube.writes) == writes


# How keys change.


def test_a_key_signs_when_its_time_has_come_and_not_before():
    old, new = TokenKey.new(NOW), TokenKey.new(NOW + 300)
    ring = KeyRing((old, new))
    table = {NOW - 1: old, NOW: old, NOW + 299: old, NOW + 300: new, NOW + 9e9: new}
    assert {moment: ring.signing(moment) for moment in table} == table


def test_an_old_key_stays_until_the_last_token_that_it_may_have_signed_is_over():
    first = KeyRing((TokenKey.new(NOW),))
    second = first.rotated(NOW + 1000, 300.0)
    assert kids(second)[0] == kids(first)[0]
    over = NOW + 1300 + MAX_LIFETIME + OVERLAP
    assert kids(second.rotated(over - 1, 300.0))[:2] == kids(second)
    assert kids(second.rotated(over, 300.0))[0] == kids(second)[1]


def test_the_key_that_signs_is_never_dropped():
    ring = KeyRing((TokenKey.new(NOW),))
    assert kids(ring.rotated(NOW + 9e9, 300.0))[0] == kids(ring)[0]


def test_there_is_a_most_of_keys():
    ring = KeyRing((TokenKey.new(NOW),))
    for _ in range(MAX_KEYS - 1):
        ring = ring.rotated(NOW, 0.0)
    with pytest.raises(TooManyKeysError, match="16 keys may still be in use"):
        ring.rotated(NOW, 0.0)


def test_what_is_public_has_no_private_part_and_does_not_change_by_itself():
    ring = KeyRing((TokenKey.new(NOW), TokenKey.new(NOW + 1)))
    assert ring.public() == KeyRing(ring.keys).public()
    assert [(key["kid"], set(key) - {"x"}) for key in json.loads(ring.public())["keys"]] == [
        (kid, {"kty", "crv", "alg", "use", "kid"}) for kid in kids(ring)
    ]


async def test_a_rotation_is_seen_by_others_published_first_and_signs_later(kube):
    now = [NOW]
    ours, theirs = (Signing(client, NAMESPACE, lambda: now[0]) for client in (kube, MemoryKube(kube.cluster)))
    await ours.load()
    await theirs.load()
    now[0] += 10_000
    await rotate(kube, NAMESPACE, now[0])
    await theirs.refresh()
    old, new = kids(theirs.material.tokens)

    def kid():
        token = theirs.signer.issue(sandbox_id="s", sandbox_uid="u", holder="h", scopes=("session",), lifetime=60.0)
        return jwt.get_unverified_header(token.text)["kid"]

    assert kid() == old
    assert [key["kid"] for key in json.loads(theirs.material.public_keys)["keys"]] == [old, new]
    now[0] += PROPAGATION
    assert kid() == new
    # The one that has not looked yet goes on with the old key, which stays public.
    assert ours.signer.keys.signing(now[0]).kid == old


async def test_of_many_that_rotate_at_once_one_does(kube):
    await load_or_create(kube, NAMESPACE, NOW)
    clients = [MemoryKube(kube.cluster) for _ in range(6)]
    rings = await asyncio.gather(*(rotate(client, NAMESPACE, NOW + 10) for client in clients))
    assert {tuple(kids(one.tokens)) for one in rings} == {tuple(kids(rings[0].tokens))}
    assert len(kids(rings[0].tokens)) == 2


async def test_a_key_that_is_young_enough_is_not_rotated(kube):
    made = await load_or_create(kube, NAMESPACE, NOW)
    same = await rotate(kube, NAMESPACE, NOW + 99, older_than=100.0)
    assert kids(same.tokens) == kids(made.tokens)
    assert len(kids((await rotate(kube, NAMESPACE, NOW + 100, older_than=100.0)).tokens)) == 2


async def test_a_secret_that_is_gone_leaves_what_a_process_has(kube):
    held = Signing(kube, NAMESPACE, lambda: NOW)
    before = await held.load()
    await kube.delete(REF)
    for every in (None, 1.0):
        with pytest.raises(NotFound):
            await held.refresh(rotate_every=every)
    assert held.authority is before.authority
    assert [ref.kind for ref in kube.cluster.objects] != [SECRET]


async def test_it_is_kept_fresh_through_failures(kube, monkeypatch):
    monkeypatch.setattr(signing, "REFRESH", 0.001)
    held = Signing(kube, NAMESPACE, lambda: NOW + 10)
    await held.load()
    secret = await kube.get(REF)
    await kube.delete(REF)
    keeping = asyncio.create_task(held.run())
    await asyncio.sleep(0.02)
    await kube.create({**EMPTY, "data": secret["data"]})
    await rotate(kube, NAMESPACE, NOW + 20)
    async with asyncio.timeout(10):
        while len(kids(held.signer.keys)) < 2:
            await asyncio.sleep(0.001)
    keeping.cancel()


# What others get of it.


async def test_executors_check_tokens_with_what_is_published(kube, tmp_path):
    material = await load_or_create(kube, NAMESPACE, NOW)
    made = keys_config_map("team", material.public_keys)
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("team", "sandfleet-keys")
    (tmp_path / "keys.json").write_text(made["data"]["keys.json"])
    token = Signer(material.tokens, lambda: NOW).issue(
        sandbox_id="s", sandbox_uid="uid-1", holder="h", scopes=("session",), lifetime=60.0
    )
    assert TokenVerifier(tmp_path / "keys.json", "uid-1", lambda: NOW).verify(token.text, "session").holder == "h"
    with pytest.raises(TokenError):
        TokenVerifier(tmp_path / "keys.json", "uid-2", lambda: NOW).verify(token.text, "session")


async def test_the_certificate_is_published_once_beside_the_secret(kube):
    held = Signing(kube, NAMESPACE, lambda: NOW)
    await held.load()
    for _ in range(2):
        await held.publish()
    found = await kube.get(Ref(CONFIG_MAP, NAMESPACE, "sandfleet-ca"))
    assert found["data"] == {"ca.crt": held.authority.pem.decode()}
    assert [write.verb for write in kube.writes[-2:]] == ["create", "apply"]


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("a", "b"), ("a" * 40, "b" * 23), ("a" * 40, "b" * 22), ("n" * 63, "s" * 63), ("n" * 63, "s" * 62), ("a-b", "c")],
)
def test_a_session_id_is_one_that_an_executor_takes_and_no_other_sandboxs(namespace, name):
    made = session_id(namespace, name)
    assert len(made) <= 64
    assert (made == f"{namespace}.{name}") == (len(namespace) + len(name) < 63)
    assert made not in {session_id(namespace, f"{name}x"), session_id(f"{namespace}x", name)}
