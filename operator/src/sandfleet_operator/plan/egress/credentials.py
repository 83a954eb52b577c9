"""Credentials that are put in outside of the session, in the place of what stands for them inside (pure)."""

import base64
import binascii
from collections.abc import Iterable, Sequence

from sandfleet_operator.api.egress import Credential

Headers = list[tuple[bytes, bytes]]

BASIC = b"basic "
MASK = b"*"
# No secret has any other byte.
PRINTABLE = bytes(range(ord(" "), ord("~") + 1))


def filled(headers: Headers, credentials: Sequence[Credential]) -> Headers:
    """The headers of a request with the secrets: in the place of placeholders, else in the credential's own header.

    An answer that is compressed could not be searched for secrets, so none is asked for.
    """
    found = [(name, _replaced(name, value, credentials)) for name, value in headers if name != b"accept-encoding"]
    for one in credentials:
        name = one.header.lower().encode()
        before = [value for each, value in headers if each == name]
        after = [value for each, value in found if each == name]
        if not before or before == after:
            found = [(each, value) for each, value in found if each != name]
            found.append((name, one.format.replace("{key}", one.value).encode()))
    return [*found, (b"accept-encoding", b"identity")]


def _replaced(name: bytes, value: bytes, credentials: Sequence[Credential]) -> bytes:
    for one in credentials:
        if not one.placeholder:
            continue
        inside, outside = one.placeholder.encode(), one.value.encode()
        value = value.replace(inside, outside)
        if name == b"authorization" and value[: len(BASIC)].lower() == BASIC:
            # git and others send user and password in this form.
            try:
                said = base64.b64decode(value[len(BASIC) :].strip(), validate=True)
            except binascii.Error:
                continue
            if inside in said:
                value = value[: len(BASIC)] + base64.b64encode(said.replace(inside, outside))
    return value


def secrets(before: Headers, after: Headers, credentials: Sequence[Credential]) -> set[bytes]:
    """What is not to come back in an answer: the secrets as they are, and as they stand in changed headers."""
    changed = {value.rpartition(b" ")[2] for name, value in after if (name, value) not in before}
    shortest = min((len(one.value) for one in credentials), default=0)
    return {one.value.encode() for one in credentials} | {word for word in changed if len(word) > shortest}


class Mask:
    """Covers secrets in an answer, byte for byte, so that its length stays; also where one lies in two pieces."""

    def __init__(self, covered: Iterable[bytes]) -> None:
        self._secrets = sorted(covered, key=len, reverse=True)
        self._most = max(map(len, self._secrets), default=1) - 1
        self._kept = b""

    def whole(self, data: bytes) -> bytes:
        """A text that comes in one piece."""
        for secret in self._secrets:
            data = data.replace(secret, MASK * len(secret))
        return data

    def piece(self, data: bytes) -> bytes:
        """What of the answer so far can be passed on."""
        # What was covered before is not found again.
        data = self.whole(self._kept + data)
        cut = max(0, len(data) - self._most)
        # A line that has ended is passed on at once: an event of a stream does not wait for the next one.
        cut += len(data[cut:].rstrip(PRINTABLE))
        self._kept = data[cut:]
        return data[:cut]

    def rest(self) -> bytes:
        """The end of the answer."""
        kept, self._kept = self._kept, b""
        return kept
