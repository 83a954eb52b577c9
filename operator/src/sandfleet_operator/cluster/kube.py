"""The Kubernetes API over HTTP, with configuration, TLS and connections of the kubernetes package."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from json.decoder import WHITESPACE  # type: ignore[attr-defined] # of the standard decoder itself
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from sandfleet_operator.api.kube import (
    KINDS,
    Event,
    Json,
    Kind,
    Listing,
    NotFound,
    Ref,
    Unreachable,
    collection,
    failure,
    kind_of,
    path,
    ref_of,
)
from sandfleet_operator.cluster.kube_api import PART, PagedLists
from sandfleet_operator.cluster.tasks import a_turn
from sandfleet_operator.telemetry.api_metrics import ApiMetrics

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PLAIN = "application/json"
# Asks for an answer without spec and status, which most callers do not need.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

# Seconds for a call, including the wait for a connection.
DEADLINE = 10.0
# Every call has its deadline around it.
UNLIMITED = aiohttp.ClientTimeout(total=None)
# Seconds after which the server ends a watch, so that a dead connection is not kept.
WATCH = 300.0
# Seconds without data after which a watch counts as dead: bookmarks come once a minute.
SILENCE = 90.0
_decode = json.JSONDecoder().raw_decode
# Bytes of one event; etcd refuses objects above 1.5 MiB.
MAX_EVENT = 16 << 20


async def configure(kubeconfig: str = "", context: str = "") -> Configuration:
    """Reads the named file; else in a pod the service account; else KUBECONFIG or ~/.kube/config.

    In a pod the token file is read again every minute. Raises Unreachable if no usable configuration is found.
    """
    configuration = Configuration(client_session_kwargs={"trust_env": False})
    try:
        if kubeconfig or not _service_account(configuration):
            where = kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION
            await load_kube_config(where, context or None, configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError) as error:
        raise Unreachable(0, "NoConfiguration", f"cannot find a cluster: {error}") from error
    # Look up the proxy once: aiohttp would do it in a thread at each request, which costs as much as the call itself.
    configuration.proxy = configuration.proxy or _proxy(configuration.host)
    return configuration


def _proxy(host: str) -> str | None:
    """The proxy that the environment names for this URL."""
    url = urlsplit(host)
    return None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)


def _service_account(configuration: Configuration) -> bool:
    """Whether a service account was found."""
    try:
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        return False
    return True


async def connect(manager: str, kubeconfig: str = "", context: str = "", kinds: tuple[Kind, ...] = KINDS) -> "Kube":
    """A client. `manager` is the field manager of its writes. Sends nothing yet. Raises Unreachable."""
    return Kube(await configure(kubeconfig, context), manager, kinds)


class Kube(PagedLists):
    """KubeApi over HTTP/1.1, 100 connections at most, watches included. Nothing is retried here: see KubeError."""

    def __init__(
        self,
        configuration: Configuration,
        manager: str,
        kinds: tuple[Kind, ...] = KINDS,
        *,
        deadline: float = DEADLINE,
        watch: float = WATCH,
        silence: float = SILENCE,
        metrics: ApiMetrics | None = None,
    ) -> None:
        self._configuration = configuration
        self.metrics = metrics or ApiMetrics()
        self._http = RESTClientObject(configuration)
        self._manager = manager
        self._kinds = kinds
        self._deadline = deadline
        self._watch_seconds = watch
        self._silence = silence

    async def get(self, ref: Ref) -> Json:
        return await self._call(f"get {ref}", "GET", path(ref))

    async def pages(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> AsyncGenerator[Listing, None]:
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": str(limit), "continue": ""}
        while True:
            doing = f"list {kind}"
            text = await self._answer(doing, "GET", collection(kind, namespace or ""), query)
            try:
                page = ListText(text)
                for part in page.parts(PART):
                    # The server leaves apiVersion and kind out of the items.
                    items = ({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in part)
                    yield Listing(tuple(items), page.resource_version)
                    await a_turn()
            except ValueError as error:
                raise _no_json(doing, text) from error
            query["continue"] = page.following
            if not query["continue"]:
                return

    async def create(self, obj: Json) -> Json:
        kind, namespace = kind_of(obj, self._kinds), obj["metadata"].get("namespace", "")
        if kind.namespaced and not namespace:
            raise ValueError(f"cannot create {kind}: the namespace is missing")
        doing = f"create {ref_of(obj, self._kinds)}"
        return await self._call(doing, "POST", collection(kind, namespace), self._managed(), body=obj, kind=kind)

    async def apply(self, obj: Json) -> Json:
        ref = ref_of(obj, self._kinds)
        query = {**self._managed(), "force": "true"}
        where = path(ref, "")
        return await self._call(f"apply {ref}", "PATCH", where, query, body=obj, content=APPLY_PATCH, kind=ref.kind)

    async def patch(self, ref: Ref, operations: Sequence[Json], subresource: str = "", *, brief: bool = False) -> Json:
        where, body, accept = path(ref, subresource), list(operations), METADATA if brief else PLAIN
        return await self._call(
            f"patch {ref}",
            "PATCH",
            where,
            self._managed(),
            body=body,
            content=JSON_PATCH,
            accept=accept,
            kind=ref.kind,
        )

    async def merge(self, ref: Ref, patch: Json, subresource: str = "") -> Json:
        where, managed = path(ref, subresource), self._managed()
        return await self._call(f"patch {ref}", "PATCH", where, managed, body=patch, content=MERGE_PATCH, kind=ref.kind)

    async def delete(
        self,
        ref: Ref,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": {name: value for name, value in conditions.items() if value is not None},
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._call(f"delete {ref}", "DELETE", path(ref), body=options, kind=ref.kind)
        except NotFound:
            return False
        return True

    def apart(self) -> "Kube":
        return Kube(
            self._configuration,
            self._manager,
            self._kinds,
            deadline=self._deadline,
            watch=self._watch_seconds,
            silence=self._silence,
            metrics=self.metrics,
        )

    async def close(self) -> None:
        await self._http.close()

    async def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        selector: str = "",
        resource_version: str = "",
        seconds: float | None = None,
        *,
        fields: str = "",
    ) -> AsyncGenerator[Event, None]:
        doing = f"watch {kind}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(seconds or self._watch_seconds)),
            "labelSelector": selector,
            "fieldSelector": fields,
            "resourceVersion": resource_version,
        }
        response = await self._open(doing, collection(kind, namespace or ""), query)
        try:
            async with aclosing(self._lines(doing, response)) as lines:
                async for line in lines:
                    event = _parsed(doing, line)
                    if event["type"] == "ERROR":
                        raise failure(doing, int(event["object"].get("code", 500)), event["object"])
                    yield Event(event["type"], event["object"])
        finally:
            response.close()

    async def _open(self, doing: str, where: str, query: Mapping[str, str]) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._send("GET", where, query)
                if response.status < 300:
                    return response
                text = await response.read()
        except (aiohttp.ClientError, ConfigException, OSError) as error:
            raise _unreached(doing, error) from error
        raise _refused(doing, response, text)

    async def _lines(self, doing: str, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        """The lines of the stream, until it ends or is silent for too long."""
        kept = bytearray()
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    chunk = await response.content.readany()
            except TimeoutError:
                return
            except (aiohttp.ClientError, OSError) as error:
                raise _unreached(doing, error) from error
            if not chunk:
                return
            kept += chunk
            *lines, rest = kept.split(b"\n") if b"\n" in chunk else (kept,)
            for line in lines:
                yield bytes(line)
            kept = rest
            if len(kept) > MAX_EVENT:
                raise Unreachable(0, "TooLarge", f"cannot {doing}: an event is larger than {MAX_EVENT} bytes")

    async def _call(
        self,
        doing: str,
        method: str,
        where: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = PLAIN,
        accept: str = PLAIN,
        kind: Kind | None = None,
    ) -> Json:
        """`kind`: what is written; None: nothing is."""
        text = await self._answer(doing, method, where, query, body=body, content=content, accept=accept, kind=kind)
        return _parsed(doing, text)

    async def _answer(
        self,
        doing: str,
        method: str,
        where: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = PLAIN,
        accept: str = PLAIN,
        kind: Kind | None = None,
    ) -> bytes:
        began, code = time.monotonic(), 0
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._send(method, where, query or {}, body=body, content=content, accept=accept)
                text = await response.read()
            code = response.status
        except (aiohttp.ClientError, ConfigException, OSError) as error:
            raise _unreached(doing, error) from error
        finally:
            if kind is not None:
                self.metrics.wrote(kind.kind, doing.partition(" ")[0], code, time.monotonic() - began)
        if response.status >= 300:
            raise _refused(doing, response, text)
        return text

    async def _send(
        self,
        method: str,
        where: str,
        query: Mapping[str, str],
        *,
        body: object = None,
        content: str = PLAIN,
        accept: str = PLAIN,
    ) -> aiohttp.ClientResponse:
        """Has no deadline: aiohttp's own loses a cancellation that comes in the same turn, and the task goes on."""
        configuration = self._configuration
        headers = {"Accept": accept, "Content-Type": content}
        # The token of a service account changes, so ask for it at each call.
        token = await configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        given = urlencode([(name, value) for name, value in query.items() if value])
        url = f"{configuration.host}{where}?{given}" if given else f"{configuration.host}{where}"
        reply = await self._http.request(method, url, headers, body, _request_timeout=UNLIMITED)  # type: ignore[no-untyped-call]
        response: aiohttp.ClientResponse = reply.response
        return response

    def _managed(self) -> dict[str, str]:
        return {"fieldManager": self._manager}


class ListText:
    """The text of a list, read part by part: a page as a whole would keep the event loop from everything else.

    An object is read when it is asked for, and what is not kept of it is gone before the next one is read. So little is
    new at a time, and Python's collector of cycles has little to look for. What a list says of itself is known when all
    its objects have been read: it may stand behind them.
    """

    def __init__(self, text: bytes) -> None:
        """Raises ValueError where it is no text."""
        self._text = text.decode()
        self._metadata: Json = {}

    @property
    def resource_version(self) -> str:
        return str(self._metadata.get("resourceVersion", ""))

    @property
    def following(self) -> str:
        """Where the next page begins; empty after the last one."""
        return str(self._metadata.get("continue", ""))

    def parts(self, many: int) -> Iterator[tuple[Json, ...]]:
        """So many objects, or what is left; at the end an empty part. Raises ValueError where it is no list."""
        objects = self._objects()
        while part := tuple(islice(objects, many)):
            yield part
        yield ()

    def _objects(self) -> Iterator[Json]:
        at = self._past("{", 0)
        while True:
            name, at = _decode(self._text, at)
            at = self._past(":", at)
            if name == "items" and self._text.startswith("[", at):
                at = yield from self._items(self._past("[", at))
            else:
                value, at = _decode(self._text, at)
                if name == "metadata":
                    self._metadata = value
            at = self._skip(at)
            if self._text.startswith("}", at):
                break
            at = self._past(",", at)
        if not self.resource_version:
            raise ValueError("a list has a resource version")

    def _items(self, at: int) -> Generator[Json, None, int]:
        """The objects; returns where they end."""
        while not self._text.startswith("]", at):
            item, at = _decode(self._text, at)
            if not isinstance(item, dict):
                raise json.JSONDecodeError("Expecting an object", self._text, at)
            yield item
            at = self._skip(at)
            if not self._text.startswith("]", at):
                at = self._past(",", at)
        return at + 1

    def _past(self, sign: str, at: int) -> int:
        """Behind this sign and the space around it. Raises ValueError."""
        at = self._skip(at)
        if not self._text.startswith(sign, at):
            raise json.JSONDecodeError(f"Expecting {sign!r}", self._text, at)
        return self._skip(at + 1)

    def _skip(self, at: int) -> int:
        found = WHITESPACE.match(self._text, at)
        return int(found.end()) if found else at


def _parsed(doing: str, text: bytes) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise _no_json(doing, text)
    return answer


def _no_json(doing: str, text: bytes) -> Unreachable:
    return Unreachable(0, "NotJson", f"cannot {doing}: the answer is not a JSON object: {text[:100]!r}")


def _refused(doing: str, response: aiohttp.ClientResponse, text: bytes) -> Exception:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {"message": text[:500].decode(errors="replace")}
    said = response.headers.get("Retry-After", "")
    return failure(
        doing, response.status, answer if isinstance(answer, dict) else {}, float(said) if said.isdecimal() else None
    )


def _unreached(doing: str, error: BaseException) -> Unreachable:
    reason = "Timeout" if isinstance(error, TimeoutError) else "ConnectionFailed"
    return Unreachable(0, reason, f"cannot {doing}: no answer from the API server: {error or type(error).__name__}")
