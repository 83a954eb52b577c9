"""Frames on a socket in the event loop. The other side is hostile."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.base.frames import Frame, FrameError

# Below malloc's limit for a mapping of its own: each message would cost three system calls more.
RECEIVE_BYTES = 120 << 10


def take_descriptor(sock: socket.socket) -> int:
    """The descriptor that was sent on `sock`; the caller owns it. Raises FrameError where there is none."""
    try:
        _, fds, _, _ = socket.recv_fds(sock, 1, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    except OSError:
        fds = []
    if not fds:
        raise FrameError("cannot take a descriptor: none was sent")
    return fds[0]


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


class FrameChannel:
    """Owns `sock`. Calls `on_frame` for each frame and `on_end` once: with None at the end of the stream, else with the
    error.

    `on_data` is called whenever something has come, before the frames in it.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[FrameError | None], None],
        on_data: Callable[[], None] = lambda: None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_data = on_data
        self._received = bytearray()
        self._unsent: list[tuple[bytes, Sequence[int]]] = []
        self._loop = asyncio.get_running_loop()
        self._watched = False
        self.ended = False
        # The other side has ended without reading everything that was sent.
        self.unread = False
        self.resume()

    def pause(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._sock)

    def resume(self) -> None:
        if not self._watched and not self.ended:
            self._watched = True
            self._loop.add_reader(self._sock, self._on_readable)

    def send(self, header: dict[str, Any], payload: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Sends now what the socket takes, the rest as it takes it. Descriptors (copies of `fds`) go with the prefix.

        Does nothing once the stream has ended: `on_end` tells the callers that wait for an answer.
        """
        if self.ended:
            self.unread = True
            return
        data = frames.encode(header, payload)
        # The other side reads descriptors beside the prefix alone.
        pieces: list[tuple[bytes, Sequence[int]]] = [(data, ())]
        if fds:
            pieces = [(data[: frames.PREFIX.size], [os.dup(fd) for fd in fds]), (data[frames.PREFIX.size :], ())]
        self._unsent += pieces
        self._flush()

    @property
    def backlog(self) -> int:
        """Pieces that the other side has not read yet, so that they do not go out."""
        return len(self._unsent)

    def drain(self) -> None:
        """Takes the frames that have come up to now, without waiting, even while paused."""
        while not self.ended and self._receive():
            pass

    def close(self) -> None:
        """No callback comes after this."""
        self.pause()
        if not self.ended or self._sock.fileno() >= 0:
            self.ended = True
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._forget_unsent()

    def _forget_unsent(self) -> None:
        for _, fds in self._unsent:
            close_all(fds)
        self._unsent.clear()

    def _flush(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                sent = socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._on_writable)
                return
            except OSError:
                self.unread = True
                self._forget_unsent()
                return  # The end of the stream is seen by reading.
            self._unsent.pop(0)
            close_all(fds)
            if sent < len(data):
                self._unsent.insert(0, (data[sent:], ()))

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._sock)
        self._flush()

    def _on_readable(self) -> None:
        self._receive()

    def _receive(self) -> bool:
        """Whether there may be more."""
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            # The kernel says so where the other side left something unread.
            self.unread = self.unread or isinstance(error, ConnectionResetError)
            data = b""
        if not data:
            self.unread = self.unread or bool(self._unsent)
            self._end(None)
            return False
        self._received += data
        self._on_data()
        try:
            self._parse()
        except (FrameError, KeyError, TypeError, ValueError) as error:
            self._end(error if isinstance(error, FrameError) else FrameError(f"cannot read a frame: {error!r}"))
            return False
        return not self.ended

    def _parse(self) -> None:
        size = frames.PREFIX.size
        while len(self._received) >= size and not self.ended:
            header_size, payload_size = frames.PREFIX.unpack_from(self._received)
            frames.check_sizes(header_size, payload_size)
            end = size + header_size + payload_size
            if len(self._received) < end:
                return
            header = frames.decode_header(bytes(self._received[size : size + header_size]))
            payload = bytes(self._received[size + header_size : end])
            del self._received[:end]
            self._on_frame(Frame(header, payload))

    def _end(self, error: FrameError | None) -> None:
        if not self.ended:
            self.close()
            self._on_end(error)
