"""Which addresses a name may lead to: public ones, and those that are allowed by an argument."""

import ipaddress
from collections.abc import Sequence

from sandfleet_operator.api.networks import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses that are no host of the public network (IANA's special-purpose registries), with the words for each.
# 169.254.0.0/16 and fd00::/8 have the metadata servers of the clouds in them.
SPECIAL: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this machine's"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "private"),
    ("127.0.0.0/8", "this machine's"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "reserved"),
    ("192.88.99.0/24", "reserved"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "reserved"),
    ("198.51.100.0/24", "reserved"),
    ("203.0.113.0/24", "reserved"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    # Cloud providers' metadata and platform services outside link-local.
    ("168.63.129.16/32", "reserved"),
    ("100::/64", "reserved"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "reserved"),
    ("3fff::/20", "reserved"),
    ("::1/128", "this machine's"),
    ("::/128", "this machine's"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "private"),
    ("ff00::/8", "multicast"),
)
_SPECIAL = tuple((ipaddress.ip_network(text), words) for text, words in SPECIAL)
# Only from here are addresses of IPv6 given to hosts of the public network.
GLOBAL = ipaddress.IPv6Network("2000::/3")
# IPv4 within IPv6: mapped, compatible, translated (NAT64) and 6to4. Each leads to the address in it.
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
COMPATIBLE = ipaddress.IPv6Network("::/96")


def refusal(address: str, allowed: Sequence[Network] = (), blocked: Sequence[Network] = ()) -> str:
    """Why no connection may be made to the address, in a word or two; empty where it may.

    `allowed` are networks that were opened by an argument, `blocked` are closed whatever else is said.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        # An address with a scope is link-local.
        return "link-local" if "%" in address else "none"
    for each in (found, *_within(found)):
        if _lies_in(each, blocked):
            return "blocked"
    if any(_lies_in(each, allowed) for each in (found, *_within(found))):
        return ""
    return next(filter(None, map(_special, (*_within(found), found))), "")


def _special(address: Address) -> str:
    words = next((words for network, words in _SPECIAL if _lies_in(address, (network,))), "")
    if not words and isinstance(address, ipaddress.IPv6Address) and address not in GLOBAL and not _within(address):
        return "reserved"
    return words


def _within(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """The address of IPv4 that one of IPv6 leads to, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address in NAT64 or (address in COMPATIBLE and int(address) > 1):
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    return ()


def _lies_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
