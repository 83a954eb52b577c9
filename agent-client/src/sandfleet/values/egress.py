"""Egress by name: what a sandbox may reach, and what it has reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Egress:
    """Hosts that a sandbox may reach by name, for `Sandbox.create(egress=…)`.

    names  "packages.example.com", "*.example.org" (every name below it), "api.example.com:8443"; without a port 80 and
           443 are meant. "GET,HEAD api.example.com/v1/*" lets only these requests through, as `Egress.host` does.
    tools  tools of this machine whose hosts are allowed as well: "python" (pip), "node" (npm), "debian" (apt), "git".
    envs   variables by which programs in the sandbox find these hosts, such as PIP_INDEX_URL; `create(envs=…)` goes
           over them.
    """

    names: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def packages(cls, *tools: str) -> Egress:
        """Allow the hosts of this machine's tools: "python" (pip), "node" (npm), "debian" (apt) and "git".

        They are read when the sandbox is created, from the set-up of these tools on this machine. Of an index of
        Python, its page says on which hosts its files are. For git, they are those of the remotes of the repository in
        the current folder, and those that its configuration rewrites addresses to, or has credentials or options for.
        `create` raises InvalidArgument where a tool is not installed, or names no host.
        """
        return cls(tools=tools)

    @classmethod
    def host(
        cls, name: str, *, ports: Sequence[int] = (), methods: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> Egress:
        """Allow requests to one host with these methods and paths: `Egress.host("api.example.com", paths=["/v1/*"])`.

        In a path, "*" at the end stands for all that follows, and elsewhere for one part between slashes. Nothing
        given allows all; without ports 80 and 443 are meant. With methods or paths, each request is read: the sandbox
        then speaks TLS with the egress process, by a certificate that it alone trusts.
        """
        where = f"{name}:{','.join(map(str, ports))}" if ports else name
        return cls((" ".join(filter(None, (",".join(methods), where + " ".join(paths)))),))

    def __add__(self, other: Egress) -> Egress:
        """Both together."""
        names, tools = ((*self.names, *other.names), (*self.tools, *other.tools))
        return Egress(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(tools)), {**self.envs, **other.envs})


@dataclass(frozen=True, slots=True)
class Header:
    """A secret for one host, for `Sandbox.create(credentials={"api.example.com": Header(…)})`.

    It is put into the requests to that host outside of the sandbox, which never has it.

    name    of the header, such as "Authorization".
    format  its value, with {key} where the secret stands, such as "Bearer {key}".
    key     the secret.
    env     a variable of the sandbox that has a placeholder, for programs that want a key: it is replaced wherever it
            stands in a header, also as the user or password of git. "": no variable; each request gets the header.
    """

    name: str
    format: str = "{key}"
    key: str = field(default="", repr=False, kw_only=True)
    env: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class HostUse:
    """Connections of a sandbox's programs to one host, or refusals of them for one reason.

    host      as the program wrote it; it may be no name.
    reason    "" if it was reached; else one word: NotListed, NotAName, AddressRefused, ServerNameDiffers,
              EncryptedHello, HostDiffers, RequestNotListed, AmbiguousRequest, NotTls, Malformed, TooMany, NoAddress,
              Unreachable, TimedOut, Untrusted, SecretMissing, Cut.
    address   that was connected to last; "" where none was.
    open      connections that are open now.
    sent      bytes from the sandbox; `received` bytes to it.
    """

    host: str
    port: int
    reason: str = ""
    address: str = ""
    connections: int = 0
    open: int = 0
    sent: int = 0
    received: int = 0
    first: datetime | None = None
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class EgressReport:
    """What a sandbox may reach by name now, and what its programs have tried: the last used host at the end."""

    names: tuple[str, ...] = ()
    hosts: tuple[HostUse, ...] = ()

    @property
    def reached(self) -> tuple[HostUse, ...]:
        """The hosts to which there were connections."""
        return tuple(each for each in self.hosts if not each.reason)

    @property
    def refused(self) -> tuple[HostUse, ...]:
        """The hosts that were refused, with the reason."""
        return tuple(each for each in self.hosts if each.reason)
