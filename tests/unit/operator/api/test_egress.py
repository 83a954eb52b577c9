"""Egress lists by name: what is a name, and what an entry allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.egress import MAX_LIST, MAX_NAMES, Name, canonical, parse, parse_all
from sandfleet_operator.api.egress import rules as rules_of
from sandfleet_operator.api.errors import FleetError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("packages.example.com", Name("packages.example.com", (80, 443))),
        ("Packages.Example.COM.", Name("packages.example.com", (80, 443))),
        ("*.example.org:8443", Name("*.example.org", (8443,))),
        ("localhost:1", Name("localhost", (1,))),
        ("xn--bcher-kva.example", Name("xn--bcher-kva.example", (80, 443))),
        ("GET a.test", Name("a.test", methods=("GET",))),
        ("a.test/v1/*", Name("a.test", paths=("/v1/*",))),
        ("GET,HEAD *.a.test:80,8443/%76%31/* /", Name("*.a.test", (80, 8443), ("GET", "HEAD"), ("/v1/*", "/"))),
    ],
)
def test_names_are_read(text, name):
    assert parse(text) == name
    assert parse(name.text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.",
        "*.com",
        "a*.example.org",
        "https://example.org",
        "example.org/a*",
        "example.org/../a",
        "example.org/a b",
        "get example.org",
        "GET, example.org",
        "GET ",
        "GET /a",
        "GET POST example.org",
        "example.org:80,",
        ",".join(map(str, range(1, 19))).join(["example.org:", ""]),
        "user@example.org",
        "exa mple.org",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:+80",
        "example.org:080",
        "example.org:000000443",
        "example.org:4430000",
        "example.org:\u0668\u0660",
        "bücher.example",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "017700000001",
        "[::1]",
        "::1",
        "::ffff:127.0.0.1",
        "127.0.0.1.",
        "1.2.3.4:80",
        "-a.example",
        "a..example",
        "a" * 64 + ".example",
        ".".join(["a" * 60] * 5),
        "a\n",
    ],
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(FleetError) as caught:
        parse(text)
    assert caught.value.problem.reason == "InvalidEgress"


def test_a_list_is_bounded():
    assert len(parse_all([f"a{number}.example" for number in range(MAX_NAMES)])) == MAX_NAMES
    with pytest.raises(FleetError):
        parse_all(["a.example"] * (MAX_NAMES + 1))
    with pytest.raises(FleetError, match="characters"):
        parse_all([f"a.example/{'x' * 200} /{'y' * 200}"] * (MAX_LIST // 400))


@pytest.mark.parametrize(
    ("entry", "host", "port", "allowed"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 8443, False),
        ("example.org", "a.example.org", 443, False),
        ("*.example.org", "a.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 80, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "badexample.org", 443, False),
        ("*.example.org:22", "a.example.org", 443, False),
    ],
)
def test_an_entry_allows_its_host_and_ports_alone(entry, host, port, allowed):
    assert parse(entry).allows(host, port) is allowed


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (["GET a.b.test"], ["GET a.b.test"]),
        (["GET a.b.test", "*.b.test/x", "c.b.test"], ["GET a.b.test", "*.b.test/x"]),
        # Another entry lets every request through.
        (["GET a.b.test", "a.b.test:443"], []),
        (["GET a.b.test:80"], []),
        ([], []),
    ],
)
def test_a_host_gets_requests_by_the_entries_that_name_it(entries, rules):
    assert [one.text for one in rules_of(map(parse, entries), "a.b.test", 443)] == rules


@given(st.text(max_size=40))
def test_a_canonical_name_is_its_own_and_never_an_address(text):
    import socket

    found = canonical(text)
    if found:
        assert canonical(found) == found
        with pytest.raises(OSError):
            socket.inet_aton(found)
