"""Hosts that the session's programs reached or were refused, as the egress process says to the executor (pure)."""

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Contacts of a session that are remembered: of more, the last ones.
MOST = 512
MOST_DENIED = 16
MAX_HOST, MAX_WORD = 253, 64
# Ports that an entry of an egress list means without naming them.
WEB_PORTS = (80, 443)


@dataclass(eq=False, slots=True)
class Contact:
    """A connection of the session to a host, or a refusal of it. Times are nanoseconds since the epoch.

    `reason` is one word, empty where the host was reached. `denied`: the session may not reach it; otherwise it failed.
    """

    host: str
    port: int
    reason: str
    denied: bool
    start: int
    # 0 while the connection is open.
    end: int = 0
    # Bytes from the session and to it.
    sent: int = 0
    received: int = 0

    @property
    def entry(self) -> str:
        """The entry of an egress list that means this host and port."""
        return self.host if self.port in WEB_PORTS else f"{self.host}:{self.port}"


class Contacts:
    """Contacts of one session, in order."""

    def __init__(self) -> None:
        self._last: deque[Contact] = deque(maxlen=MOST)
        # So far.
        self.count = 0
        # Adds those that are told and not heard yet.
        self.catch_up: Callable[[], None] = lambda: None

    def add(self, contact: Contact) -> None:
        self._last.append(contact)
        self.count += 1

    def since(self, count: int) -> tuple[Contact, ...]:
        """Those that came after the first `count`, as far as they are remembered."""
        new = min(self.count - count, len(self._last))
        return tuple(self._last)[len(self._last) - new :]


def denied(contacts: Iterable[Contact]) -> tuple[str, ...]:
    """Hosts that the session may not reach, each once."""
    return tuple(dict.fromkeys(one.entry for one in contacts if one.denied))[:MOST_DENIED]


class Line:
    """One connection of a program to the proxy, over which it has one contact after another."""

    def __init__(self, contacts: Contacts) -> None:
        self._contacts = contacts
        self._now: Contact | None = None

    def hear(self, report: bytes, now: int) -> None:
        """A report of the egress process, as an object of JSON. Raises ValueError."""
        found = json.loads(report)
        if not isinstance(found, dict):
            return
        self.end(now)
        host, reason = str(found.get("host", ""))[:MAX_HOST], str(found.get("reason", ""))[:MAX_WORD]
        port, is_denied = int(found.get("port", 0)), bool(found.get("denied"))
        contact = Contact(host, port, reason, is_denied, now, end=now if reason else 0)
        self._contacts.add(contact)
        self._now = None if reason else contact

    def sent(self, count: int) -> None:
        if self._now is not None:
            self._now.sent += count

    def received(self, count: int) -> None:
        if self._now is not None:
            self._now.received += count

    def end(self, now: int) -> None:
        """The contact is over, because of another one or because its program is gone."""
        if self._now is not None:
            self._now.end, self._now = now, None
