"""The egress process of one machine. The fleet gives it the listening socket, and ends it by ending its input.

Lines of JSON come on its input:
  {"op":"allow","session","names":[…],"credentials":[…],"authority"} · {"op":"end","session"}
  {"op":"serve"}: it knows all lists, and takes connections from now on
and go to its output:
  {"event":"ready"} · {"event":"seen","sessions":{session:[row, …]}} (sessions.Row)
An executor that connects to the socket hands the listener of its session over with its first line (handed.py). Over
TLS, a connection begins with a line by which an executor says whose it is, {"pod","reports","again"}, as a piece
(framed.FramedPeer). Then its program speaks. Where `again` is true and both ends have said all, a report says so, and
the executor may begin anew with such a line.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from sandfleet_operator.api.egress import Credential, canonical
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.networks import network
from sandfleet_operator.fleet.egress import handed, socks
from sandfleet_operator.fleet.egress.framed import FramedPeer
from sandfleet_operator.fleet.egress.http import Front
from sandfleet_operator.fleet.egress.outside import RESOLVER, Outside, Ways
from sandfleet_operator.fleet.egress.peer import Peer
from sandfleet_operator.fleet.egress.sessions import Bounds, Session, Sessions
from sandfleet_operator.plan.egress.refusals import Why

MAX_FIRST_LINE = 4096
MAX_LINE_BYTES = 1 << 20
BACKLOG = 1024
# Executors close earlier what no program uses.
KEPT_SECONDS = 60.0


class Egress:
    """Serves the connections of all sessions."""

    def __init__(self, sessions: Sessions, outside: Outside) -> None:
        self._sessions, self._outside = sessions, outside

    async def program(self, session_id: str, peer: Peer) -> None:
        """A program of a session of this machine, from its first byte to its end."""
        await self._conversations({"session": session_id}, peer)

    async def serve(self, peer: Peer) -> None:
        """A connection that begins with a line by which an executor says whose it is."""
        try:
            said = await self._greeting(peer, self._sessions.bounds.opening)
        except (OSError, EOFError, ValueError):
            peer.close()
        else:
            await self._conversations(said, peer)

    async def _conversations(self, said: dict[str, Any], peer: Peer) -> None:
        """A connection of one program, and of others behind it where their executor keeps it."""
        task = asyncio.current_task()
        assert task is not None
        session = None
        try:
            while True:
                if isinstance(peer, FramedPeer):
                    peer.reports = bool(said.get("reports"))
                session = await self._session(said, peer)
                if session is None:
                    return
                session.tasks.add(task)
                await self._serve(peer, session)
                if not await peer.has_ended() or not isinstance(peer, FramedPeer) or not said.get("again"):
                    return
                session.tasks.discard(task)
                with session.keeping(task):
                    peer = peer.again()
                    said = await self._greeting(peer, KEPT_SECONDS)
        except (OSError, EOFError, ValueError):
            # It has gone, or was idle for too long (a TimeoutError is an OSError), or is no executor.
            pass
        except asyncio.CancelledError:
            # Its session has ended, or it was removed from the list.
            peer.abort()
        finally:
            if session is not None:
                session.tasks.discard(task)
            peer.close()

    async def _find(self, said: dict[str, Any], peer: Peer) -> Session | None:  # noqa: ARG002 - an executor's word is enough here
        """The session of a connection that began with this line."""
        return self._sessions.find(str(said.get("session", "")))

    @staticmethod
    async def _greeting(peer: Peer, seconds: float) -> dict[str, Any]:
        """The first line."""
        async with asyncio.timeout(seconds):
            said = json.loads(await peer.line(MAX_FIRST_LINE))
        return said if isinstance(said, dict) else {}

    async def _session(self, said: dict[str, Any], peer: Peer) -> Session | None:
        found = await self._find(said, peer)
        if found is None:
            return None
        if self._sessions.is_full or len(found.tasks) >= found.bounds.per_session:
            # Without a word to the program: it would cost as much as to serve it.
            found.row("", 0, Why.TOO_MANY.value).connections += 1
            return None
        return found

    async def _serve(self, peer: Peer, session: Session) -> None:
        async with asyncio.timeout(session.bounds.idle):
            first = await peer.read()
        if not first:
            return
        peer.unread(first)
        if first[0] == socks.VERSION:
            await socks.serve(peer, session, self._outside)
        else:
            await Front(peer, session, self._outside).serve()


async def serve(listener: socket.socket, sessions: Sessions, outside: Outside) -> None:
    """Until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    say = await _output(loop)
    egress = Egress(sessions, outside)
    say({"event": "ready"})
    reporting = asyncio.create_task(_report(sessions, say))
    serving: asyncio.Task[None] | None = None
    while line := await lines.readline():
        request = json.loads(line)
        if request["op"] == "serve":
            # Not before: a connection that waits would find no list of its session.
            serving = asyncio.create_task(handed.serve(listener, egress.program))
        else:
            _obey(request, sessions)
    reporting.cancel()
    if serving is not None:
        serving.cancel()


def _obey(request: dict[str, Any], sessions: Sessions) -> None:
    match request["op"]:
        case "allow":
            # The fleet has checked the names.
            with contextlib.suppress(FleetError):
                credentials = [Credential(**one) for one in request.get("credentials", ())]
                sessions.allow(request["session"], request["names"], credentials, request.get("authority", ""))
        case "end":
            sessions.end(request["session"])


async def _report(sessions: Sessions, say: Callable[[dict[str, Any]], None]) -> None:
    while True:
        await asyncio.sleep(sessions.bounds.report)
        if reports := sessions.reports():
            say({"event": "seen", "sessions": reports})


async def _output(loop: asyncio.AbstractEventLoop) -> Callable[[dict[str, Any]], None]:
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    def say(event: dict[str, Any]) -> None:
        transport.write(json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n")

    return say


def main() -> int:
    parser = argparse.ArgumentParser(prog="sandfleet-egress", description="Connects sessions to hosts, by name.")
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--network", action="append", default=[], help="that is not public, where names may lead")
    parser.add_argument("--host", action="append", default=[], help="NAME=ADDRESS, which is not looked up")
    given = parser.parse_args()
    pairs = (one.partition("=") for one in given.host)
    ways = Ways(allowed=[network(one) for one in given.network], hosts={canonical(name): to for name, _, to in pairs})
    os.environ.update(RESOLVER)
    listener = socket.socket(fileno=given.listen_fd)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(listener, Sessions(Bounds()), Outside(ways)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
