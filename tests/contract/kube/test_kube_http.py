"""The client over HTTP with a server that is slow, busy, broken or silent."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import incluster_config
from sandfleet_operator.api.kube import (
    CONFIG_MAP,
    Conflict,
    Event,
    Expired,
    KubeError,
    Ref,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from sandfleet_operator.cluster.kube import Kube, configure, connect
from sandfleet_operator.cluster.kube_api import PART

ONE = Ref(CONFIG_MAP, "here", "one")
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "here", "name": "one"}}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[..., Awaitable[Kube]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`await serve(answer)`: a client whose server gives this answer to every request."""
    runners, clients = [], []

    async def make(answer: Answer, configuration: Configuration | None = None, **limits: float) -> Kube:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        configuration = configuration or Configuration()
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        clients.append(Kube(configuration, "tester", **limits))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()
    for runner in runners:
        await runner.cleanup()


def saying(status: int, body: object, **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(
            status=status, text=text, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    return answer


async def test_a_busy_servers_retry_after_is_passed_on(serve: Serve):
    kube = await serve(saying(429, {"reason": "TooManyRequests", "message": "too many"}, Retry_After="7"))
    with pytest.raises(TooManyRequests, match="cannot create configmaps/here/one: too many") as refusal:
        await kube.create(CONFIG)
    assert refusal.value.retry_after == 7.0
    assert not refusal.value.unsettled


@pytest.mark.parametrize("status", [500, 503, 504])
async def test_a_server_error_leaves_the_outcome_of_a_write_open(serve: Serve, status: int):
    kube = await serve(saying(status, "<html>gateway</html>", Retry_After="soon"))
    with pytest.raises(ServerError, match="gateway") as refusal:
        await kube.create(CONFIG)
    assert (refusal.value.status, refusal.value.unsettled, refusal.value.retry_after) == (status, True, None)


@pytest.mark.parametrize("body", ["<html>hello</html>", "[]", ""])
async def test_an_answer_that_is_not_an_object_is_an_error(serve: Serve, body: str):
    kube = await serve(saying(200, body))
    with pytest.raises(Unreachable, match="not a JSON object"):
        await kube.get(ONE)


@pytest.mark.parametrize("body", ["<html>hello</html>", "[]", "", '{"items":[{}]}', '{"items":[{}'])
async def test_an_answer_that_is_not_a_list_is_an_error(serve: Serve, body: str):
    kube = await serve(saying(200, body))
    with pytest.raises(Unreachable, match=r"cannot list configmaps: the answer is not a JSON object"):
        await kube.list(CONFIG_MAP, "team-a")


async def test_others_get_their_turn_before_each_part_of_a_page(serve: Serve):
    items = ",".join('{"metadata":{"name":"x"}}' for _ in range(3 * PART + 1))
    kube = await serve(saying(200, f'{{"items":[{items}],"metadata":{{"resourceVersion":"7"}}}}'))
    turns, sizes = [], []
    async for part in kube.pages(CONFIG_MAP):
        sizes.append((len(part.items), len(turns)))
        asyncio.get_running_loop().call_soon(turns.append, "others")
    assert sizes == [(PART, 0), (PART, 1), (PART, 2), (1, 3), (0, 4)]


async def test_a_call_ends_at_its_deadline(serve: Serve):
    async def never(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    kube = await serve(never, deadline=0.2)
    for call in (kube.get(ONE), kube.create(CONFIG), kube.list(CONFIG_MAP), anext(kube.watch(CONFIG_MAP))):
        with pytest.raises(Unreachable) as refusal:
            await call
        assert (refusal.value.reason, refusal.value.unsettled) == ("Timeout", True)


async def test_a_write_whose_connection_breaks_is_sent_once(serve: Serve):
    seen = []

    async def cut(request: web.Request) -> web.Response:
        seen.append(request.method)
        request.transport.close()
        return web.Response()

    kube = await serve(cut)
    for call in (kube.create(CONFIG), kube.patch(ONE, []), kube.merge(ONE, {}), kube.apply(CONFIG)):
        with pytest.raises(Unreachable):
            await call
    assert seen == ["POST", "PATCH", "PATCH", "PATCH"]


async def test_a_closed_port_is_unreachable():
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    kube = Kube(configuration, "tester")
    with pytest.raises(Unreachable, match="cannot get configmaps/here/one: no answer"):
        await kube.get(ONE)
    await kube.close()


async def test_writes_name_their_manager_and_patch_type(serve: Serve):
    seen = []

    async def note(request: web.Request) -> web.Response:
        content = request.headers["Content-Type"].partition(";")[0]
        seen.append((request.method, request.path, dict(request.query), content, await request.json()))
        return web.json_response(CONFIG)

    kube = await serve(note)
    await kube.create(CONFIG)
    await kube.apply(CONFIG)
    await kube.patch(ONE, [{"op": "remove", "path": "/data"}])
    await kube.merge(ONE, {"data": None}, "status")
    await kube.delete(ONE, uid="7", grace_seconds=0)
    at, by = "/api/v1/namespaces/here/configmaps", {"fieldManager": "tester"}
    options = {"preconditions": {"uid": "7"}, "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    assert seen == [
        ("POST", at, by, "application/json", CONFIG),
        ("PATCH", f"{at}/one", {**by, "force": "true"}, "application/apply-patch+yaml", CONFIG),
        ("PATCH", f"{at}/one", by, "application/json-patch+json", [{"op": "remove", "path": "/data"}]),
        ("PATCH", f"{at}/one/status", by, "application/merge-patch+json", {"data": None}),
        ("DELETE", f"{at}/one", {}, "application/json", {"apiVersion": "v1", "kind": "DeleteOptions", **options}),
    ]


async def test_deleting_a_missing_object_is_no_error_and_another_object_is(serve: Serve):
    assert await (await serve(saying(404, {"reason": "NotFound"}))).delete(ONE) is False
    with pytest.raises(Conflict):
        await (await serve(saying(409, {"reason": "Conflict"}))).delete(ONE, uid="7")


async def test_the_token_is_read_for_each_call(serve: Serve):
    seen, tokens = [], itertools.count()

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response(CONFIG)

    configuration = Configuration()
    configuration.refresh_api_key_hook = lambda given: given.api_key.update(BearerToken=f"bearer {next(tokens)}")
    kube = await serve(note, configuration)
    await kube.get(ONE)
    await kube.get(ONE)
    assert seen == ["bearer 0", "bearer 1"]


# Watches.


def line(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def streaming(*chunks: bytes, then: str = "end") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.001)
        if then == "cut":
            request.transport.abort()
        if then == "silence":
            await asyncio.Event().wait()
        return response

    return answer


def numbered(number: int) -> dict[str, object]:
    return {"metadata": {"name": f"é{number}", "resourceVersion": str(number)}}


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
async def test_events_are_whole_however_the_stream_is_split(serve: Serve, size: int):
    text = b"".join(line("ADDED", numbered(number)) for number in range(5))
    kube = await serve(streaming(*(text[start : start + size] for start in range(0, len(text), size))))
    assert [event async for event in kube.watch(CONFIG_MAP)] == [Event("ADDED", numbered(n)) for n in range(5)]


async def test_a_silent_watch_ends(serve: Serve):
    kube = await serve(streaming(line("ADDED", numbered(1)), then="silence"), silence=0.2)
    async with asyncio.timeout(30):
        assert [event.type async for event in kube.watch(CONFIG_MAP)] == ["ADDED"]


async def test_a_broken_watch_raises_after_its_events(serve: Serve):
    kube = await serve(streaming(line("ADDED", numbered(1)), b'{"type": "MOD', then="cut"))
    async with aclosing(kube.watch(CONFIG_MAP)) as stream:
        assert (await anext(stream)).type == "ADDED"
        with pytest.raises(Unreachable):
            await anext(stream)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, Expired),
        ({"code": 410, "reason": "Gone", "message": "too old"}, Expired),
        ({"code": 500, "reason": "InternalError", "message": "no"}, ServerError),
        ({}, ServerError),
    ],
)
async def test_an_error_in_the_stream_is_raised(serve: Serve, status: dict[str, object], error: type[KubeError]):
    kube = await serve(streaming(line("ERROR", status)))
    with pytest.raises(error):
        await anext(kube.watch(CONFIG_MAP))


async def test_a_refused_watch_raises(serve: Serve):
    kube = await serve(saying(410, {"reason": "Expired", "message": "too old"}))
    with pytest.raises(Expired, match="cannot watch configmaps: too old"):
        await anext(kube.watch(CONFIG_MAP))


async def test_an_endless_event_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandfleet_operator.cluster.kube.MAX_EVENT", 1000)
    kube = await serve(streaming(*[b"x" * 400] * 4))
    with pytest.raises(Unreachable, match="larger than 1000 bytes"):
        await anext(kube.watch(CONFIG_MAP))


# Where the cluster is.


async def test_a_missing_configuration_is_reported(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match="cannot find a cluster") as refusal:
        await connect("tester", str(tmp_path / "none"))
    assert refusal.value.reason == "NoConfiguration"


def kubeconfig(server: str):
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }


@pytest.mark.parametrize(("excluded", "proxy"), [("", "http://proxy.invalid:1"), ("api.invalid", None)])
async def test_the_environments_proxy_is_used_except_for_excluded_hosts(tmp_path, monkeypatch, excluded, proxy):
    for name in ("https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:1")
    monkeypatch.setenv("no_proxy", excluded)
    (tmp_path / "config").write_text(json.dumps(kubeconfig("https://api.invalid:6443")))
    configuration = await configure(str(tmp_path / "config"))
    assert (configuration.host, configuration.proxy) == ("https://api.invalid:6443", proxy)


async def test_in_a_pod_the_service_account_is_used(tmp_path, monkeypatch: pytest.MonkeyPatch):
    for name, text in (("token", "secret"), ("ca.crt", "authority")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = await configure()
    assert (configuration.host, configuration.ssl_ca_cert) == ("https://[fd00::1]:443", str(tmp_path / "ca.crt"))
    assert await configuration.get_api_key_with_prefix("BearerToken") == "bearer secret"


async def test_a_separate_client_has_its_own_connections(serve: Serve):
    waiting, taken = asyncio.Event(), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal taken
        if request.path.endswith("/slow"):
            taken += 1
            await waiting.wait()
        return web.json_response(CONFIG)

    configuration = Configuration()
    configuration.connection_pool_maxsize = 2
    kube = await serve(answer, configuration)
    apart = kube.apart()
    slow = [asyncio.create_task(kube.get(Ref(CONFIG_MAP, "here", "slow"))) for _ in range(2)]
    async with asyncio.timeout(30):
        while taken < 2:
            await asyncio.sleep(0.01)
        behind = asyncio.create_task(kube.get(ONE))
        assert (await apart.get(ONE))["metadata"]["name"] == "one"
        assert not behind.done()
        waiting.set()
        await asyncio.gather(behind, *slow)
    await apart.close()


@pytest.mark.parametrize("first", ["cancelled", "too late"])
@pytest.mark.parametrize("answers", ["nothing", "half"])
async def test_a_call_that_is_cancelled_in_the_turn_in_which_its_time_is_over_is_cancelled(
    serve: Serve, first: str, answers: str
):
    asked = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        if answers == "half":
            await response.prepare(request)
            await response.write(b"{")
        asked.set()
        await asyncio.sleep(60)
        return response

    kube = await serve(late, deadline=0.2)
    call = asyncio.ensure_future(kube.get(ONE))
    await asked.wait()
    asyncio.get_running_loop().call_later(0.1 if first == "cancelled" else 0.3, call.cancel)
    # Stands still until both are due, as a busy machine does.
    time.sleep(0.6)
    with pytest.raises(asyncio.CancelledError):
        await call
