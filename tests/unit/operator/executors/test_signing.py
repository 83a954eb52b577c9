"""The signing material: created once by the first process, and rotated so that every token can be checked."""

import asyncio
import base64
import json

import jwt
import pytest
from sandfleet_executor.core.access.token_claims import TokenError
from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_operator.api.kube import CONFIG_MAP, SECRET, Forbidden, NotFound, Ref, Unreachable
from sandfleet_operator.executors import signing
from sandfleet_operator.executors.signing import (
    PROPAGATION,
    ROTATE_EVERY,
    Signing,
    SigningError,
    load_or_create,
    read,
    rotate,
)
from sandfleet_operator.executors.tokens import (
    MAX_KEYS,
    OVERLAP,
    TRANSFER_LIFETIME,
    KeyRing,
    Signer,
    TokenKey,
    TooManyKeysError,
)
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.pods.podspec import keys_config_map
from support.fakes.kube_memory import After, Before, MemoryKube

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


# The first process.


@pytest.mark.parametrize("there", [None, EMPTY, {**EMPTY, "data": {}}], ids=["missing", "without data", "empty"])
async def test_missing_material_is_created_and_then_read(kube, there):
    if there:
        await kube.create(there)
    made = await load_or_create(kube, NAMESPACE, NOW)
    again = await load_or_create(kube, NAMESPACE, NOW + 1)
    assert again.authority.pem == made.authority.pem
    assert kids(again.tokens) == kids(made.tokens)
    assert again.resource_version == made.resource_version
    assert (await kube.get(REF))["metadata"]["resourceVersion"] == made.resource_version


@pytest.mark.parametrize("there", [None, EMPTY], ids=["missing", "empty"])
async def test_of_many_processes_that_start_at_once_all_use_the_same_material(kube, there):
    if there:
        await kube.create(there)
    clients = [MemoryKube(kube.cluster) for _ in range(8)]
    made = await asyncio.gather(*(load_or_create(client, NAMESPACE, NOW) for client in clients))
    assert len({one.authority.pem for one in made}) == 1
    assert {tuple(kids(one.tokens)) for one in made} == {tuple(kids(made[0].tokens))}
    assert sum(len(client.writes) for client in clients) > 1


@pytest.mark.parametrize("there", [None, EMPTY], ids=["missing", "empty"])
async def test_a_write_with_a_lost_reply_is_read_back(kube, there):
    if there:
        await kube.create(there)
    before = len(kube.writes)
    kube.fault = lambda _write: After()
    made = await load_or_create(kube, NAMESPACE, NOW)
    assert read(await kube.get(REF)).authority.pem == made.authority.pem
    assert len(kube.writes) == before + 1


async def test_a_refused_write_is_raised(kube):
    kube.fault = lambda _write: Before(Forbidden(403, "Forbidden", "cannot create: no"))
    with pytest.raises(Forbidden):
        await load_or_create(kube, NAMESPACE, NOW)


async def test_attempts_against_a_silent_server_are_bounded(kube):
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
async def test_unreadable_material_is_refused_and_never_replaced(kube, changes, why):
    data = (await load_or_create(kube, NAMESPACE, NOW), (await kube.get(REF))["data"])[1]
    broken = spoilt(data, **changes)
    with pytest.raises(SigningError, match=why):
        read(broken)
    await kube.merge(REF, {"data": {name: broken["data"].get(name) for name in data}})
    writes = len(kube.writes)
    with pytest.raises(SigningError):
        await load_or_create(kube, NAMESPACE, NOW)
    assert len(kube.writes) == writes


# Rotation.


def test_a_key_signs_from_its_time_on():
    old, new = TokenKey.new(NOW), TokenKey.new(NOW + 300)
    ring = KeyRing((old, new))
    table = {NOW - 1: old, NOW: old, NOW + 299: old, NOW + 300: new, NOW + 9e9: new}
    assert {moment: ring.signing(moment) for moment in table} == table


def test_an_old_key_stays_until_its_last_token_has_expired():
    first = KeyRing((TokenKey.new(NOW),))
    second = first.rotated(NOW + 1000, 300.0)
    assert kids(second)[0] == kids(first)[0]
    over = NOW + 1300 + TRANSFER_LIFETIME + OVERLAP
    assert kids(second.rotated(over - 1, 300.0))[:2] == kids(second)
    assert kids(second.rotated(over, 300.0))[0] == kids(second)[1]


def test_the_signing_key_is_never_dropped():
    ring = KeyRing((TokenKey.new(NOW),))
    assert kids(ring.rotated(NOW + 9e9, 300.0))[0] == kids(ring)[0]


def test_the_number_of_keys_is_bounded():
    ring = KeyRing((TokenKey.new(NOW),))
    for _ in range(MAX_KEYS - 1):
        ring = ring.rotated(NOW, 0.0)
    with pytest.raises(TooManyKeysError, match="16 keys may still be in use"):
        ring.rotated(NOW, 0.0)


def test_the_jwks_has_no_private_part_and_is_stable():
    ring = KeyRing((TokenKey.new(NOW), TokenKey.new(NOW + 1)))
    assert ring.public() == KeyRing(ring.keys).public()
    assert [(key["kid"], set(key) - {"x"}) for key in json.loads(ring.public())["keys"]] == [
        (kid, {"kty", "crv", "alg", "use", "kid"}) for kid in kids(ring)
    ]


def test_a_replaced_key_is_published_with_the_end_of_its_last_token_and_the_newest_with_one_that_moves():
    ring = KeyRing((TokenKey.new(NOW), TokenKey.new(NOW + 100)))

    def ends(now):
        return [key["sandfleet_end"] for key in json.loads(ring.public(lambda data: data, now))["keys"]]

    midnight = NOW // 86400 * 86400
    assert ends(midnight) == [NOW + 100 + TRANSFER_LIFETIME + OVERLAP, midnight + 9 * 86400]
    assert ends(midnight + 86399) == ends(midnight), "the text changes once a day"
    # It is further away than the next rotation.
    assert ends(midnight + 86400)[1] == midnight + 10 * 86400 > midnight + 86400 + ROTATE_EVERY + PROPAGATION


async def test_a_rotated_key_is_published_first_and_signs_later(kube):
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
    assert [key["kid"] for key in json.loads(theirs.public_keys)["keys"]] == [old, new]
    now[0] += PROPAGATION
    assert kid() == new
    # A process that has not refreshed yet signs with the old key, which stays public.
    assert ours.signer.keys.signing(now[0]).kid == old


async def test_of_many_simultaneous_rotations_one_adds_a_key(kube):
    await load_or_create(kube, NAMESPACE, NOW)
    clients = [MemoryKube(kube.cluster) for _ in range(6)]
    rings = await asyncio.gather(*(rotate(client, NAMESPACE, NOW + 10) for client in clients))
    assert {tuple(kids(one.tokens)) for one in rings} == {tuple(kids(rings[0].tokens))}
    assert len(kids(rings[0].tokens)) == 2


async def test_a_young_key_is_not_rotated(kube):
    made = await load_or_create(kube, NAMESPACE, NOW)
    same = await rotate(kube, NAMESPACE, NOW + 99, older_than=100.0)
    assert kids(same.tokens) == kids(made.tokens)
    assert len(kids((await rotate(kube, NAMESPACE, NOW + 100, older_than=100.0)).tokens)) == 2


async def test_a_missing_secret_leaves_the_known_material(kube):
    held = Signing(kube, NAMESPACE, lambda: NOW)
    before = await held.load()
    await kube.delete(REF)
    for every in (None, 1.0):
        with pytest.raises(NotFound):
            await held.refresh(rotate_every=every)
    assert held.authority is before.authority
    assert [ref.kind for ref in kube.cluster.objects] != [SECRET]


async def test_the_material_is_refreshed_through_failures(kube, monkeypatch):
    monkeypatch.setattr(signing, "REFRESH", 0.001)
    held = Signing(kube, NAMESPACE, lambda: NOW + 10)
    await held.load()
    secret = await kube.get(REF)
    await kube.delete(REF)
    keeping = asyncio.create_task(held.run())
    await asyncio.sleep(0.02)
    await kube.create({**EMPTY, "data": secret["data"]})
    await rotate(kube, NAMESPACE, NOW + 20)
    async with asyncio.timeout(60):
        while len(kids(held.signer.keys)) < 2:
            await asyncio.sleep(0.001)
    keeping.cancel()


# Publication.


async def test_executors_check_tokens_with_the_published_keys(kube, tmp_path):
    material = await load_or_create(kube, NAMESPACE, NOW)
    made = keys_config_map("team", material.public_keys(NOW))
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
def test_a_session_id_is_valid_for_executors_and_unique(namespace, name):
    made = session_id(namespace, name)
    assert len(made) <= 64
    assert (made == f"{namespace}.{name}") == (len(namespace) + len(name) < 63)
    assert made not in {session_id(namespace, f"{name}x"), session_id(f"{namespace}x", name)}
