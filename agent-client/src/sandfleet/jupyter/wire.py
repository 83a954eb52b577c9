"""The five sockets of a Jupyter kernel, as its connection file says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

SHELL, CONTROL, STDIN = "shell", "control", "stdin"
_MOST_FILE = 64 << 10


class Request:
    """A message of a front end; `of` is from where it came, for the answer."""

    def __init__(self, channel: str, identities: list[bytes], message: dict[str, Any]) -> None:
        self.channel = channel
        self.identities = identities
        self.message = message

    @property
    def kind(self) -> str:
        """Its type, as "execute_request"."""
        return str(self.message["header"]["msg_type"])

    @property
    def content(self) -> dict[str, Any]:
        """What it asks for."""
        content = self.message["content"]
        return content if isinstance(content, dict) else {}


class Wire:
    """Binds the sockets. Raises OSError and ValueError for a connection file that cannot be used."""

    def __init__(self, connection_file: Path) -> None:
        # Imported late, and only here: Jupyter is an extra.
        import zmq
        import zmq.asyncio
        from jupyter_client.session import Session

        with connection_file.open("rb") as file:
            said = json.loads(file.read(_MOST_FILE))
        self._zmq = zmq
        self._session = Session(
            key=str(said["key"]).encode(), signature_scheme=said.get("signature_scheme", "hmac-sha256"), check_pid=False
        )
        context = zmq.asyncio.Context()
        join = "-" if said["transport"] == "ipc" else ":"

        def bound(kind: int, name: str) -> Any:
            socket = context.socket(kind)
            socket.setsockopt(zmq.LINGER, 1000)
            socket.bind(f"{said['transport']}://{said['ip']}{join}{said[f'{name}_port']}")
            return socket

        self._published = bound(zmq.PUB, "iopub")
        self._channels = {name: bound(zmq.ROUTER, name) for name in (SHELL, CONTROL, STDIN)}
        self._beat = bound(zmq.REP, "hb")
        self._context = context

    async def requests(self, channel: str) -> AsyncIterator[Request]:
        """Yield what comes on a channel. What is not signed, or no message, is dropped."""
        while True:
            parts = await self._channels[channel].recv_multipart()
            try:
                identities, rest = self._session.feed_identities(parts)
                message = self._session.deserialize(rest)
                request = Request(channel, identities, message)
                _ = request.kind
            except Exception:  # noqa: BLE001, S112  whatever it is, it is no message of this session
                continue
            yield request

    def publish(self, kind: str, content: Mapping[str, Any], parent: Request | None) -> None:
        """Tell all front ends."""
        topic = f"kernel.{self._session.session}.{kind}".encode()
        header = parent.message["header"] if parent else {}
        self._session.send(self._published, kind, dict(content), parent=header, ident=topic)

    def reply(self, request: Request, content: Mapping[str, Any]) -> None:
        """Answer a request."""
        kind = request.kind.replace("_request", "_reply")
        header = request.message["header"]
        self._session.send(
            self._channels[request.channel], kind, dict(content), parent=header, ident=request.identities
        )

    def ask_for_input(self, request: Request, prompt: str, *, password: bool) -> None:
        """Ask the front end of a request for a line."""
        content = {"prompt": prompt, "password": password}
        header = request.message["header"]
        self._session.send(self._channels[STDIN], "input_request", content, parent=header, ident=request.identities)

    async def beat(self) -> None:
        """Give each heartbeat back, until cancelled."""
        while True:
            await self._beat.send(await self._beat.recv())

    async def close(self) -> None:
        """Send what is left, and close the sockets."""
        # PUB gives its messages to a thread; a moment lets it send the last one.
        await asyncio.sleep(0.05)
        for socket in (*self._channels.values(), self._published, self._beat):
            socket.close()
        self._context.term()
