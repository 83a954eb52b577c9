"""The session of a CodeSandbox: one for each object, under an id that the executor takes."""

import hashlib

# Of a session id.
MAX_ID = 64
HASH = 16


def session_id(namespace: str, name: str) -> str:
    """`namespace.name`, or 64 characters that stand for a longer one. No two objects share one: neither part has a dot.

    One of 64 is hashed too: what is made here is never the id of another object.
    """
    whole = f"{namespace}.{name}"
    if len(whole) < MAX_ID:
        return whole
    return f"{whole[: MAX_ID - 1 - HASH]}-{hashlib.sha256(whole.encode()).hexdigest()[:HASH]}"
