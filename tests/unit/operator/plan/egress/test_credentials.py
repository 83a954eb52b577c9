"""Secrets that are put into requests, and covered in answers."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.egress import Credential, check_credentials, parse_all
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.plan.egress.credentials import Mask, filled, secrets

SECRET, PLACEHOLDER = "secret-of-the-test", "sandfleet-credential-00"
ALWAYS = Credential("a.test", "Authorization", "Bearer {key}", SECRET)
BY_PLACE = Credential("a.test", "Authorization", "Bearer {key}", SECRET, "KEY", PLACEHOLDER)
IDENTITY = (b"accept-encoding", b"identity")


def test_a_header_is_set_whatever_stood_there():
    asked = [(b"x", b"y"), (b"authorization", b"Bearer other"), (b"accept-encoding", b"gzip")]
    assert filled(asked, [ALWAYS]) == [(b"x", b"y"), (b"authorization", f"Bearer {SECRET}".encode()), IDENTITY]


def test_a_placeholder_is_replaced_in_whatever_header_it_stands():
    asked = [(b"x-key", PLACEHOLDER.encode()), (b"authorization", f"Token {PLACEHOLDER}".encode())]
    assert filled(asked, [BY_PLACE]) == [
        (b"x-key", SECRET.encode()),
        (b"authorization", f"Token {SECRET}".encode()),
        IDENTITY,
    ]


def test_a_placeholder_as_a_password_is_replaced_and_its_form_is_covered_too():
    basic = b"Basic " + base64.b64encode(f"user:{PLACEHOLDER}".encode())
    after = filled([(b"authorization", basic)], [BY_PLACE])
    want = base64.b64encode(f"user:{SECRET}".encode())
    assert after[0] == (b"authorization", b"Basic " + want)
    assert secrets([(b"authorization", basic)], after, [BY_PLACE]) == {SECRET.encode(), want}


def test_the_placeholder_of_another_session_stays_as_it_is():
    other = b"sandfleet-credential-ff"
    assert (b"x-key", other) in filled([(b"x-key", other)], [BY_PLACE])


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"secret", b"-of", b"-the-test", SECRET.encode(), b"s" * 30]), max_size=12)
)
def test_a_secret_in_any_pieces_does_not_come_back_and_the_length_stays(pieces):
    mask = Mask({SECRET.encode()})
    out = b"".join([*map(mask.piece, pieces), mask.rest()])
    assert SECRET.encode() not in out
    assert len(out) == len(b"".join(pieces))
    assert out == b"".join(pieces).replace(SECRET.encode(), b"*" * len(SECRET))


def test_a_line_that_has_ended_does_not_wait_for_what_follows():
    """A secret has no end of a line in it, so an event of a stream is passed on as it comes."""
    mask = Mask({SECRET.encode()})
    assert mask.piece(b"data: 1\n\n") == b"data: 1\n\n"
    assert mask.piece(b"data: " + SECRET[:-1].encode()) == b"data: "
    assert mask.piece(SECRET[-1:].encode() + b"\n") == b"*" * len(SECRET) + b"\n"


def test_the_secret_is_in_no_text_about_it():
    assert SECRET not in repr(ALWAYS)


@pytest.mark.parametrize(
    "wrong",
    [
        Credential("b.test", "Authorization", "{key}", SECRET),
        Credential("a.test", "Host", "{key}", SECRET),
        Credential("a.test", "Content-Length", "{key}", SECRET),
        Credential("a.test", "X Y", "{key}", SECRET),
        Credential("a.test", "X", "Bearer", SECRET),
        Credential("a.test", "X", "{key}{key}", SECRET),
        Credential("a.test", "X", "{key}\r\nY: z", SECRET),
        Credential("a.test", "X", "{key}", f"{SECRET}\r\nY: z"),
        Credential("a.test", "X", "{key}", "short"),
        Credential("a.test", "X", "{key}", SECRET, "A-B"),
    ],
)
def test_credentials_that_cannot_be_are_refused_without_their_secret(wrong):
    with pytest.raises(FleetError) as caught:
        check_credentials([wrong], parse_all(["a.test"]))
    assert SECRET not in str(caught.value)
    check_credentials([ALWAYS, BY_PLACE], parse_all(["*.test.example", "a.test:8443"]))
