"""Tickets: the place of a waiting claim, signed, which its caller shows to the next leader of the fleet.

A ticket is an HMAC-SHA256 and a JSON list. Its key is derived from the key that signs tokens, which all leaders have.
Only the fleet makes and reads tickets, so that a symmetric signature is enough: it costs microseconds.
"""

import hmac
import json
from collections.abc import Callable

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sandfleet_operator.api.validate import MAX_WAIT
from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.executors.tokens import KeyRing, TokenKey
from sandfleet_operator.plan.scheduler.claim_queue import Place, StartTags

# Of what is derived from the key: a ticket is good for nothing else.
PURPOSE = b"sandfleet ticket 1"
MAC_BYTES = 32
MAX_BYTES = 4096
# Seconds after which a ticket counts no more: no claim waits longer.
LIFETIME = MAX_WAIT


class TicketError(Exception):
    """The ticket gives no place. The message completes "its ticket was ignored: "."""


class Tickets:
    def __init__(self, keys: Callable[[], KeyRing], clock: Callable[[], float]) -> None:
        self._keys = keys
        self._clock = clock
        # Id of a token key → what signs tickets.
        self._derived: dict[str, bytes] = {}

    def issue(self, key: RequestKey, place: Place) -> bytes:
        now = self._clock()
        lead = place.lead
        said = [now, key.holder, key.request_id, key.pool, place.queue, place.asked, lead.of_queue, lead.of_holder]
        payload = json.dumps(said, separators=(",", ":")).encode()
        return self._mac(self._keys().signing(now), payload) + payload

    def read(self, ticket: bytes, key: RequestKey, queue: str) -> Place:
        """The place of the claim of this key in this queue. Raises TicketError."""
        mac, payload = ticket[:MAC_BYTES], ticket[MAC_BYTES:]
        genuine = len(ticket) <= MAX_BYTES and any(
            hmac.compare_digest(mac, self._mac(one, payload)) for one in self._keys().keys
        )
        if not genuine:
            raise TicketError("it is not of this fleet, or was altered")
        issued, holder, request_id, pool, place_of, asked, of_queue, of_holder = json.loads(payload)
        if (RequestKey(holder, request_id, pool), place_of) != (key, queue):
            raise TicketError("it is of another claim")
        now = self._clock()
        if now - issued > LIFETIME:
            raise TicketError(f"it is older than {LIFETIME:g} s")
        # The clock of the leader before may be ahead.
        return Place(queue, min(asked, now), StartTags(of_queue, of_holder))

    def _mac(self, key: TokenKey, payload: bytes) -> bytes:
        secret = self._derived.get(key.kid)
        if secret is None:
            derivation = HKDF(SHA256(), length=MAC_BYTES, salt=None, info=PURPOSE)
            secret = self._derived[key.kid] = derivation.derive(key.private.private_bytes_raw())
        return hmac.digest(secret, payload, "sha256")
