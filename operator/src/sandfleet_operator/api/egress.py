"""Egress lists by name, as people write them: `packages.example.com`, `*.example.org`, `GET api.example.com/v1/*`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.request_paths import MAX_PATTERN, matches, pattern

MAX_NAMES = 100
# Characters of a list: it is part of an annotation, and of one message.
MAX_LIST = 32 << 10
# Ports, methods and paths of one entry.
MAX_PARTS = 16
MAX_HOST = 253
HTTP_PORT = 80
MAX_CREDENTIALS, MAX_VALUE = 32, 8192
# A shorter value would be found, and covered, everywhere in an answer.
LEAST_VALUE = 8
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
# Headers that say where a request goes and where it ends.
FRAMING = frozenset(
    [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "proxy-authorization",
    ]
)
# A name without a port stands for these.
WEB_PORTS = (80, 443)
WILDCARD = "*."
LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
METHOD = re.compile(r"[A-Z][A-Z-]{0,19}")
# A last label of these is a number to a resolver, and the name an address: 127.1, 2130706433, 0x7f.1.
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Name:
    """One entry of a list. `host` is canonical; `ports` are those that may be connected to.

    `methods` and `paths` (patterns) are those of requests; none: every request may be made.
    """

    host: str
    ports: tuple[int, ...] = WEB_PORTS
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def has_rules(self) -> bool:
        """Whether each request has to be looked at."""
        return bool(self.methods or self.paths)

    def allows(self, host: str, port: int) -> bool:
        """Whether a canonical host and a port are meant: `*.example.org` means every name below example.org."""
        if port not in self.ports:
            return False
        if self.host.startswith(WILDCARD):
            return host.endswith(self.host[1:])
        return host == self.host

    def permits(self, method: str, path: str) -> bool:
        """Whether a request with this canonical path may be made."""
        if self.methods and method not in self.methods:
            return False
        return not self.paths or any(matches(one, path) for one in self.paths)

    def covers(self, other: "Name", port: int) -> bool:
        """Whether all hosts and requests of the other name are meant, too, at this port."""
        if self.host.startswith(WILDCARD):
            is_host = other.host.removeprefix("*").endswith(self.host[1:])
        else:
            is_host = self.host == other.host
        if port not in self.ports or not is_host:
            return False
        if self.methods and not (other.methods and set(other.methods) <= set(self.methods)):
            return False
        paths = other.paths or ("",)
        return not self.paths or all(any(matches(one, path) for one in self.paths) for path in paths)

    @property
    def text(self) -> str:
        """As people write it, and `parse` reads it again."""
        ports = "" if self.ports == WEB_PORTS else ":" + ",".join(map(str, self.ports))
        methods = f"{','.join(self.methods)} " if self.methods else ""
        return f"{methods}{self.host}{ports}{' '.join(self.paths)}"


def first_outside(wish: Sequence[Name], allowed: Sequence[Name]) -> str:
    """The first entry of the wish that the allowed list does not have, with its port; empty: it has all.

    Hosts, methods and paths of an entry have to lie within one entry of the allowed list: `GET a.test/v1/x` lies
    within `GET,HEAD a.test/v1/*`.
    """
    for one in wish:
        for port in one.ports:
            if not any(each.covers(one, port) for each in allowed):
                return (one if one.ports == WEB_PORTS else replace(one, ports=(port,))).text
    return ""


def rules(names: Iterable[Name], host: str, port: int) -> tuple[Name, ...]:
    """The entries that say which requests a host may get; none where one entry lets every request through."""
    found = tuple(name for name in names if name.allows(host, port))
    return found if all(name.has_rules for name in found) else ()


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret that is put into the requests to one host, outside of the session.

    `format` has {key} where the value is to stand in the header. `env` names the variable of the session whose value is
    the placeholder; empty: there is none.
    """

    host: str
    header: str
    format: str
    value: str = field(repr=False)
    env: str = ""
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class WayOut:
    """What an executor is told of a session's egress."""

    is_open: bool = False
    # Variables with the placeholders of secrets.
    envs: Mapping[str, str] = field(default_factory=dict)
    # The certificate of the session's own authority, as PEM; empty: TLS is ended nowhere.
    authority: str = ""


def canonical(host: str) -> str:
    """The host in lower case without a final dot; empty where it is no name: every form of an address is none."""
    found = host.lower().removesuffix(".")
    labels = found.split(".")
    if not found.isascii() or len(found) > MAX_HOST or NUMBER.fullmatch(labels[-1]):
        return ""
    return found if all(LABEL.fullmatch(label) for label in labels) else ""


def port_of(text: str) -> int:
    """The port in decimal digits, without zeros before it; 0 for anything else."""
    return int(text) if PORT.fullmatch(text) and int(text) < 1 << 16 else 0


def parse(text: str) -> Name:
    """HOST or *.HOST with :PORT[,PORT], methods before it and paths behind it: `GET,HEAD a.test:8443/v1/* /v2/*`.

    Raises FleetError.
    """
    words = text.split(" ")
    methods = words.pop(0).split(",") if len(words) > 1 and not words[1].startswith("/") else []
    place, slash, path = words[0].partition("/")
    if len(words) > 1 and not slash:
        raise _refusal(text, "the first path stands behind the host without a space, as in a.example.com/v1/* /v2/*")
    host, colon, ports = place.rpartition(":") if ":" in place else (place, "", "")
    numbers = [port_of(one) for one in ports.split(",")] if colon else []
    return entry(text, host, numbers, methods, [*([slash + path] if slash else []), *words[1:]])


def entry(text: str, host: str, ports: Sequence[int], methods: Sequence[str], paths: Sequence[str]) -> Name:
    """An entry by its parts; `text` is shown where it is refused. Raises FleetError."""
    if not all(ports):
        raise _refusal(text, "after the colon stands no port")
    star = WILDCARD if host.startswith(WILDCARD) else ""
    found = canonical(host.removeprefix(star))
    if not found:
        why = (
            "write a host name as packages.example.com or *.example.org, with a :PORT or without; no address and no URL"
        )
        raise _refusal(text, why)
    if star and "." not in found:
        raise _refusal(text, "a * before a single label would allow all names below a top-level domain")
    bad = next((one for one in methods if not METHOD.fullmatch(one)), None)
    if bad is not None:
        raise _refusal(text, f"{bad[:20]!a} is no method; write GET or GET,HEAD before the host")
    patterns = [pattern(one) for one in paths]
    if not all(patterns):
        why = f"a path begins with / and has {MAX_PATTERN} characters at most; a * in it stands for a whole segment"
        raise _refusal(text, f"{why}, or at the end for all that follows")
    if max(len(ports), len(methods), len(paths)) > MAX_PARTS:
        raise _refusal(text, f"it has more than {MAX_PARTS} ports, methods or paths")
    numbers = tuple(dict.fromkeys(ports)) or WEB_PORTS
    return Name(star + found, numbers, tuple(dict.fromkeys(methods)), tuple(dict.fromkeys(patterns)))


def parse_all(texts: Sequence[str]) -> tuple[Name, ...]:
    """Raises FleetError."""
    if len(texts) > MAX_NAMES:
        raise ClaimReason.INVALID_EGRESS.error(f"cannot allow egress to {len(texts)} names: the most are {MAX_NAMES}")
    if sum(map(len, texts)) > MAX_LIST:
        raise ClaimReason.INVALID_EGRESS.error(f"cannot allow egress: the list has more than {MAX_LIST} characters")
    return tuple(map(parse, texts))


def check_credentials(credentials: Sequence[Credential], names: Sequence[Name]) -> None:
    """Raises FleetError. No message has a secret in it."""
    if len(credentials) > MAX_CREDENTIALS:
        raise _bad(f"there are {len(credentials)}, and the most are {MAX_CREDENTIALS}")
    for one in credentials:
        check_place(one, names)
        if not is_value(one.value):
            raise _bad(f"the value for {one.host} is not {LEAST_VALUE} to {MAX_VALUE} printable characters of ASCII")


def check_place(one: Credential, names: Sequence[Name]) -> None:
    """Whether the credential has a host of the list and a place in its requests; the value is not looked at.

    Raises FleetError.
    """
    if not any(name.allows(one.host, port) for name in names for port in name.ports if port != HTTP_PORT):
        raise _bad(f"{one.host[:80]!a} is no host that the egress list allows at a port of HTTPS")
    if not HEADER.fullmatch(one.header) or one.header.lower() in FRAMING:
        raise _bad(f"{one.header[:80]!a} is no header that may be set")
    if one.format.count("{key}") != 1 or not VALUE.fullmatch(one.format):
        raise _bad(f"the format for {one.host} has to have {{key}} in it once")
    if one.env and not ENV_NAME.fullmatch(one.env):
        raise _bad(f"{one.env[:80]!a} is no name of a variable")


def is_value(text: str) -> bool:
    """Whether it can be put into a header, and searched for in answers."""
    return bool(VALUE.fullmatch(text)) and LEAST_VALUE <= len(text) <= MAX_VALUE


def _bad(why: str) -> FleetError:
    return ClaimReason.INVALID_EGRESS.error(f"cannot take the credentials: {why}")


def _refusal(text: str, why: str) -> FleetError:
    shown = ascii(text[:80])
    return ClaimReason.INVALID_EGRESS.error(f"cannot allow egress to {shown}: {why}", text[:80])
