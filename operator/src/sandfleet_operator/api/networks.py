"""Networks as people write them."""

import ipaddress

from sandfleet_operator.api.errors import invalid

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def network(text: str) -> Network:
    """`10.0.0.0/8`, `fd00::/8`, or one address; bits behind the prefix are dropped. Raises FleetError."""
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise invalid("InvalidCidr", f"cannot read {text[:80]!r} as a network: {error}", text[:80]) from None
    if "%" in text:
        why = "a scope means nothing to another machine"
        raise invalid("InvalidCidr", f"cannot read {text[:80]!r} as a network: {why}", text[:80])
    return found
