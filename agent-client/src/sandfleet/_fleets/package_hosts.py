"""The hosts of package indexes and of git, as the tools of this machine are set up."""

from __future__ import annotations

import ast
import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

from sandfleet.errors import InvalidArgument
from sandfleet.values.egress import Egress
from sandfleet.values.options import CreateOptions

Found = tuple[tuple[str, ...], dict[str, str]]

_COMMAND_SECONDS, _PAGE_SECONDS = 30.0, 10.0
# A page about one project: what is read of it names the hosts of its files.
_PAGE_BYTES = 1 << 20
_HTTP, _HTTPS = 80, 443
# A project that every index has: its page is small.
_PROJECT = "pip"
_DEFAULT = re.compile(r"\(default:?\s+(https?://[^\s)]+)\)")
# ssh://me@host:22/path, and me@host:path.
_BY_SSH = re.compile(r"ssh://(?:[^@/]*@)?(?P<host>[^:/]+)(?::\d+)?(?:/.*)?|[^@/:]+@(?P<host2>[^:/]+):.*")
_MOST_REWRITTEN = 16
_QUOTED = re.compile(r"^'([^']+)'", re.MULTILINE)
_LINK = re.compile(r"""href=["']([^"'#]+)""")


async def resolved(wish: Egress) -> Egress:
    """Return the wish with names in the place of its tools. Raises InvalidArgument."""
    found = wish
    for tool in wish.tools:
        names, envs = await asyncio.to_thread(of, tool)
        found += Egress(names, envs=envs)
    return replace(found, tools=(), envs={**found.envs, **wish.envs})


async def with_hosts(options: CreateOptions) -> CreateOptions:
    """Return the options of a claim with the hosts of the tools of its egress. Raises InvalidArgument."""
    wish = options.get("egress")
    return {**options, "egress": await resolved(wish)} if isinstance(wish, Egress) and wish.tools else options


def of(tool: str) -> Found:
    """Return the names of a tool's hosts, and variables by which it finds them. Raises InvalidArgument."""
    if tool in _TOOLS:
        return _TOOLS[tool]()
    known = ", ".join(f'"{name}"' for name in _TOOLS)
    raise InvalidArgument(f"cannot find the hosts of {tool!r}: the tools are {known}", reason="NoSuchTool")


def _python() -> Found:
    pip = [sys.executable, "-m", "pip"]
    if not _output([*pip, "--version"]):
        pip = [shutil.which("pip") or "pip"]
    urls: dict[str, list[str]] = {"index-url": [], "extra-index-url": []}
    for line in _output([*pip, "config", "list"]).splitlines():
        key, _, value = line.partition("=")
        kind = key.rpartition(".")[2]
        if kind in urls:
            with suppress(ValueError, SyntaxError):
                urls[kind] = str(ast.literal_eval(value)).split()
    envs = {f"PIP_{kind.replace('-', '_').upper()}": " ".join(map(_bare, said)) for kind, said in urls.items() if said}
    indexes = urls["index-url"] or _DEFAULT.findall(re.sub(r"\s+", " ", _output([*pip, "install", "--help"])))[:1]
    if not indexes:
        raise _unknown("python", "pip")
    every = [*indexes, *urls["extra-index-url"]]
    return tuple(dict.fromkeys(name for url in every for name in (_name(url), *_file_hosts(url)) if name)), envs


def _node() -> Found:
    url = _output([shutil.which("npm") or "npm", "config", "get", "registry"]).strip()
    if not (name := _name(url)):
        raise _unknown("node", "npm")
    return (name,), {"npm_config_registry": _bare(url)}


def _debian() -> Found:
    """Return the hosts of apt's sources, from the addresses of its lists, which it prints and does not fetch."""
    said = _output([shutil.which("apt-get") or "apt-get", "update", "--print-uris"])
    if not (names := _names(_QUOTED.findall(said))):
        raise _unknown("debian", "apt")
    return names, {}


def _git() -> Found:
    """Return the hosts that git's configuration names: remotes of the repository here, rewritten addresses, and those
    with credentials or options of their own. Addresses that it rewrites are rewritten in the sandbox, too.
    """
    urls: list[str] = []
    rewritten: list[tuple[str, str]] = []
    for line in _output([shutil.which("git") or "git", "config", "--list", "-z"]).split("\0"):
        key, _, value = line.partition("\n")
        section, url, option = key.partition(".")[0], key.partition(".")[2].rpartition(".")[0], key.rpartition(".")[2]
        if section == "remote" and option in ("url", "pushurl"):
            urls.append(value)
        elif section in ("url", "credential", "http"):
            urls.append(url)
        if section == "url" and option == "insteadof" and _name(url):
            rewritten.append((f"url.{_bare(url)}.insteadOf", value))
    if not (names := _names(map(_web, urls))):
        raise InvalidArgument(
            "cannot find the hosts of 'git': git's configuration here names none", reason="NoSuchTool"
        )
    pairs = enumerate(rewritten[:_MOST_REWRITTEN])
    envs = {
        f"GIT_CONFIG_{what}_{n}": text for n, pair in pairs for what, text in zip(("KEY", "VALUE"), pair, strict=True)
    }
    return names, {"GIT_CONFIG_COUNT": str(len(envs) // 2), **envs} if envs else {}


_TOOLS = {"python": _python, "node": _node, "debian": _debian, "git": _git}


def _web(address: str) -> str:
    """Return the address by https of a repository that is reached by ssh: sandboxes reach it so."""
    if found := _BY_SSH.fullmatch(address):
        return f"https://{found['host'] or found['host2']}/"
    return address


def _names(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for url in urls if (name := _name(url))))


def _file_hosts(index: str) -> tuple[str, ...]:
    """Return the hosts that an index's page links to; none where it does not answer."""
    page = f"{index.rstrip('/')}/{_PROJECT}/"
    try:
        with urlopen(Request(page, headers={"Accept": "text/html"}), timeout=_PAGE_SECONDS) as answer:  # noqa: S310  its scheme is that of pip's set-up
            text = answer.read(_PAGE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, HTTPException):
        return ()
    return _names(urljoin(page, link) for link in _LINK.findall(text))


def _name(url: str) -> str:
    """Return host and port of an address as an egress list has them; "" for an address without a host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return host if port in (None, _HTTP, _HTTPS) else f"{host}:{port}"


def _bare(url: str) -> str:
    """Return the address without a user and a password: they are not for the sandbox."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _output(command: list[str]) -> str:
    """Return what a command prints; "" where it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _unknown(tool: str, program: str) -> InvalidArgument:
    return InvalidArgument(
        f"cannot find the hosts of {tool!r}: {program} is not installed, or does not say from where it installs",
        reason="NoSuchTool",
    )
