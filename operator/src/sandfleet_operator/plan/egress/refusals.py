"""Why a session does not reach a host: one word each, and the sentence that the program in the session reads."""

from dataclasses import dataclass
from enum import Enum
from typing import Self


class Why(Enum):
    """The word, the status of HTTP, and the sentence's second half."""

    value: str
    status: int
    words: str

    def __new__(cls, word: str, status: int, words: str) -> Self:
        one = object.__new__(cls)
        one._value_, one.status, one.words = word, status, words
        return one

    NOT_LISTED = ("NotListed", 403, "not in its egress list")
    NOT_A_NAME = ("NotAName", 403, "only hosts with names can be reached, and this is none")
    ADDRESS = ("AddressRefused", 403, "the name leads to an address that is not public")
    SERVER_NAME = ("ServerNameDiffers", 403, "the TLS connection asks for another server, or for none by name")
    ENCRYPTED = ("EncryptedHello", 403, "the TLS connection hides which server it asks for")
    HOST = ("HostDiffers", 403, "the Host header names another host")
    REQUEST = ("RequestNotListed", 403, "its egress list does not allow this request")
    AMBIGUOUS = ("AmbiguousRequest", 403, "its path, or one of its headers, can be read as another request")
    NOT_TLS = ("NotTls", 403, "the connection speaks neither TLS nor HTTP")
    MALFORMED = ("Malformed", 400, "the request is malformed")
    TOO_MANY = ("TooMany", 429, "it has too many connections, names or bytes")
    NO_ADDRESS = ("NoAddress", 502, "the name has no address")
    NO_ANSWER = ("LookupFailed", 502, "its name servers do not answer")
    UNREACHABLE = ("Unreachable", 502, "no server answers there")
    UNTRUSTED = ("Untrusted", 502, "the server's certificate is not valid")
    TIMED_OUT = ("TimedOut", 504, "the server does not answer in time")
    NO_SECRET = ("SecretMissing", 502, "the secret for it cannot be read")
    CUT = ("Cut", 403, "it was removed from the egress list")


@dataclass(frozen=True, slots=True)
class Place:
    """A host and port as the session wrote them; the host may be no name."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


# Characters of a host that are shown; what is no name may have any.
SHOWN = 100


class RefusedError(Exception):
    """A connection is not made, or not carried on."""

    def __init__(self, why: Why, place: Place, request: str = "") -> None:
        """`request` is a method and a path, which the program alone is told."""
        words = f"{why.words}: {shown(request)}" if request else why.words
        super().__init__(f"this session may not reach {shown(str(place))}: {words}")
        self.why, self.place = why, place


def shown(text: str, most: int = SHOWN) -> str:
    """At most so many characters of what a program has said, those that are not printable ASCII as "?"."""
    return "".join(each if each.isprintable() and each.isascii() else "?" for each in text[:most])
