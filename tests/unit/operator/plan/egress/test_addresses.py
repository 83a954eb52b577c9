"""To which addresses a name may lead."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.networks import network
from sandfleet_operator.plan.egress.addresses import refusal


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "192.169.0.1", "2606:4700::1111", "64:ff9b::101:101"]
)
def test_public_addresses_may_be_connected_to(address):
    assert refusal(address) == ""


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.0.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
        "100::1",
        "4000::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "::7f00:1",
        "::127.0.0.1",
        "not an address",
        "127.1",
        "2130706433",
    ],
)
def test_all_others_are_refused(address):
    assert refusal(address)


def test_an_argument_opens_a_network_and_no_more():
    allowed = [network("10.1.0.0/16")]
    assert refusal("10.1.2.3", allowed) == ""
    assert refusal("::ffff:10.1.2.3", allowed) == ""
    assert refusal("10.2.0.1", allowed)


def test_what_is_blocked_goes_before_what_is_allowed():
    assert refusal("1.1.1.1", [network("0.0.0.0/0")], [network("1.1.1.0/24")]) == "blocked"
    assert refusal("::ffff:1.1.1.1", [], [network("1.1.1.0/24")]) == "blocked"


@given(st.ip_addresses(v=4))
def test_no_address_is_allowed_that_python_takes_for_private(address):
    if not address.is_global or address.is_multicast:
        assert refusal(str(address)) or address in ipaddress.ip_network("192.0.0.0/8")


@given(st.ip_addresses(v=4))
def test_every_form_within_ipv6_is_refused_as_its_address_is(address):
    for form in (
        f"::ffff:{address}",
        f"64:ff9b::{address}",
        str(ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80))),
    ):
        assert bool(refusal(str(ipaddress.IPv6Address(form)))) == bool(refusal(str(address)))
