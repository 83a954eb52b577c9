"""The name that a TLS client asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.plan.egress.hello import Hello, NotTlsError, read
from support.operator.egress_bed import client_hello

ECH = b"\xfe\x0d\x00\x01\x00"
HELLO = client_hello("packages.example.com")


def split(record, at):
    """The same message in two records."""
    head, body = record[:3], record[5:]
    return b"".join(head + len(part).to_bytes(2, "big") + part for part in (body[:at], body[at:]))


def test_the_name_is_read():
    assert read(HELLO) == Hello("packages.example.com", encrypted=False)


def test_a_hello_without_a_name_has_none():
    assert read(client_hello(None)) == Hello("", encrypted=False)


def test_an_encrypted_hello_is_told():
    assert read(client_hello("packages.example.com", extra=ECH)) == Hello("packages.example.com", encrypted=True)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 100, len(HELLO) - 1])
def test_a_part_of_a_hello_is_not_enough(count):
    assert read(HELLO[:count]) is None


@pytest.mark.parametrize("at", [1, 3, 4, 60, len(HELLO) - 6])
def test_a_hello_in_two_records_is_one(at):
    assert read(split(HELLO, at)) == read(HELLO)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x02\x01",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\x00\x04\x01\x00\x50\x00",
        b"\x80\x2e\x01\x03\x01",
    ],
)
def test_other_protocols_are_none(data):
    with pytest.raises(NotTlsError):
        read(data)


@pytest.mark.parametrize(
    "extra",
    [b"\x00\x00\x00\x09\x00\x07\x00\x00\x04evil", b"\x12\x34\x00\x05a"],
)
def test_two_names_and_wrong_lengths_are_refused(extra):
    with pytest.raises(NotTlsError):
        read(client_hello("packages.example.com", extra=extra))


@given(st.binary(max_size=200), st.integers(0, len(HELLO)))
def test_any_bytes_are_a_hello_too_few_or_none(noise, at):
    try:
        found = read(HELLO[:at] + noise)
    except NotTlsError:
        return
    assert found is None or isinstance(found, Hello)
