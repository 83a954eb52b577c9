"""Headers between a browser and a sandbox, and who is let in. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandfleet.resources import links
from sandfleet.resources.links import Place

Headers = Sequence[tuple[bytes, bytes]]

COOKIE = b"sandfleet_link"
REQUEST_ID = b"x-request-id"
_BEARER = b"bearer "
_PARAMETER = links.PARAMETER.encode() + b"="
# RFC 9110, 7.6.1: they are of one connection.
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
# This server says them, or has answered them (expect).
_OURS = frozenset(
    b"expect forwarded x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip".split()
) | {REQUEST_ID}


@dataclass(frozen=True, slots=True)
class Asked:
    """The head of a request; names of headers are in lower case."""

    method: bytes
    target: bytes
    headers: Headers
    client: str = ""

    def all(self, name: bytes) -> list[bytes]:
        """Return all values of a header."""
        return [value for other, value in self.headers if other == name]

    def first(self, name: bytes) -> str:
        """Return the first value of a header; "" if there is none."""
        return next((value.decode("latin-1") for value in self.all(name)), "")

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition(b"?")[0].decode("latin-1")

    @property
    def host(self) -> str:
        """The Host header; "" unless there is exactly one."""
        hosts = self.all(b"host")
        return hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of this server's own."""

    status: int
    text: str
    headers: Headers = field(default=())

    def head(self) -> list[tuple[bytes, bytes]]:
        """Return all headers: browsers neither keep nor interpret the text."""
        return [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(self.body)).encode()),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
            *self.headers,
        ]

    @property
    def body(self) -> bytes:
        """The text as a line."""
        return self.text.encode() + b"\n"


def admitted(asked: Asked, key: bytes, now: float) -> Place | Answer:
    """Return where a request may go, or what it is answered."""
    if (place := links.place_at(asked.host)) is None:
        return Answer(404, "There is nothing here: the addresses of previews are links by get_url.")
    if asked.all(b"content-length") and asked.all(b"transfer-encoding"):
        return Answer(400, "cannot pass the request on: it has both Content-Length and Transfer-Encoding")
    if not asked.target.startswith(b"/"):
        return Answer(400, "cannot pass the request on: its target does not begin with /")
    if token := _token_in(asked):
        return _entered(asked, place, token, key, now)
    tokens = _bearer(asked) or [value for name, value in _cookies(asked.headers) if name == COOKIE]
    if not tokens:
        return Answer(403, "cannot open this port: it takes a link by get_url, whose cookie this browser lacks")
    problems = [links.problem(key, place, token.decode("latin-1"), now) for token in tokens]
    return place if "" in problems else _refused(problems[0])


def _token_in(asked: Asked) -> bytes:
    parts = asked.target.partition(b"?")[2].split(b"&")
    return next((part.removeprefix(_PARAMETER) for part in parts if part.startswith(_PARAMETER)), b"")


def _entered(asked: Asked, place: Place, token: bytes, key: bytes, now: float) -> Answer:
    """Take a link's token out of the address, and into a cookie of this origin."""
    if why := links.problem(key, place, token.decode("latin-1"), now):
        return _refused(why)
    path, _, query = asked.target.partition(b"?")
    rest = b"&".join(part for part in query.split(b"&") if not part.startswith(_PARAMETER))
    # Not relative: a path that begins with // would name another host.
    target = b"http://" + asked.host.encode("latin-1") + path + (b"?" + rest if rest else b"")
    age = int(token.partition(b".")[0]) - int(now)
    cookie = COOKIE + b"=" + token + b"; Max-Age=%d; Path=/; HttpOnly; SameSite=Lax" % age
    return Answer(303, "The link is good.", [(b"location", target), (b"set-cookie", cookie)])


def _refused(why: str) -> Answer:
    return Answer(403, f"cannot open this port with the link: {why}")


def _is_token(text: bytes) -> bool:
    until, _, mac = text.partition(b".")
    return until.isdigit() and len(mac) == len("x" * 43)


def _bearer(asked: Asked) -> list[bytes]:
    return [value[len(_BEARER) :] for value in asked.all(b"authorization") if _is_our_bearer(value)]


def _is_our_bearer(value: bytes) -> bool:
    """Tell tokens of links from those of the sandbox's own program, which are passed on."""
    return value[: len(_BEARER)].lower() == _BEARER and _is_token(value[len(_BEARER) :])


def _cookies(headers: Headers) -> Iterable[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"cookie":
            for part in value.split(b";"):
                key, _, text = part.strip().partition(b"=")
                yield key.strip(), text.strip()


def for_sandbox(asked: Asked, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """Return a request's headers as the sandbox gets them; a body in chunks stays one."""
    gone = _of_connection(asked.headers) | _OURS | {b"cookie"}
    passed = [
        (name, value)
        for name, value in asked.headers
        if name not in gone and not (name == b"authorization" and _is_our_bearer(value))
    ]
    if cookies := [name + b"=" + value for name, value in _cookies(asked.headers) if name != COOKIE]:
        passed.append((b"cookie", b"; ".join(cookies)))
    if asked.all(b"transfer-encoding"):
        passed.append((b"transfer-encoding", b"chunked"))
    return [
        *passed,
        (b"x-forwarded-for", asked.client.encode()),
        (b"x-forwarded-host", asked.host.encode("latin-1")),
        (b"x-forwarded-proto", b"http"),
        (REQUEST_ID, request_id),
    ]


def for_browser(headers: Headers, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """Return an answer's headers as the browser gets them: cookies stay with their own origin."""
    gone = _of_connection(headers) | {REQUEST_ID}
    passed = [(name, value) for name, value in headers if name not in gone and name != b"set-cookie"]
    cookies = [_own(value) for name, value in headers if name == b"set-cookie"]
    return [*passed, *((b"set-cookie", value) for value in cookies if value), (REQUEST_ID, request_id)]


def _own(cookie: bytes) -> bytes:
    """Take Domain out of a cookie; return b"" for one with the name of ours."""
    pair, *attributes = cookie.split(b";")
    if pair.partition(b"=")[0].strip() == COOKIE:
        return b""
    return b";".join([pair, *(one for one in attributes if one.partition(b"=")[0].strip().lower() != b"domain")])


def _of_connection(headers: Headers) -> frozenset[bytes]:
    named = {token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")}
    return _HOP_BY_HOP | named
