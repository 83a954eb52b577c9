"""What is typed to leave a terminal, and what is left of output for a terminal and for a file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.cli.terminal.escapes import Coloured, Leaving, Plain


@pytest.mark.parametrize(
    ("typed", "sent", "left"),
    [
        (b"ls\r", b"ls\r", False),
        (b"~.", b"", True),
        (b"ls\r~.rest", b"ls\r", True),
        (b"ls\n~.", b"ls\n", True),
        (b"a~.", b"a~.", False),
        (b"~~.", b"~.", False),
        (b"~~\r~.", b"~\r", True),
        (b"~/bin\r", b"~/bin\r", False),
        (b"~\r~.", b"~\r", True),
        (b"cd ~\r", b"cd ~\r", False),
    ],
)
def test_tilde_and_dot_leave_at_the_beginning_of_a_line_alone(typed, sent, left):
    whole, single = Leaving(), Leaving()
    assert (whole.feed(typed), whole.left) == (sent, left)
    cut = b""
    for byte in typed:
        cut += single.feed(bytes([byte]))
        if single.left:
            break
    assert (cut, single.left) == (sent, left)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (b"plain \xc3\xa9\ttext\n", b"plain \xc3\xa9\ttext\n"),
        (b"a\r\nb\r", b"a\nb"),
        (b"\x1b[1;31mred\x1b[0m", b"red"),
        (b"\x1b[?2004hx", b"x"),
        (b"\x1b]0;title\x07x", b"x"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1bP+q544e\x1b\\x", b"x"),
        (b"\x1b(Bx\x1b7y\x1b8", b"xy"),
        (b"\x1b]0;never ends \x1b[31mred", b"red"),
        (b"\x1b\x1b[31mx", b"x"),
        (b"\x1b[12\x18x", b"x"),
        (b"a\x07\x08\x00\x7fb", b"ab"),
    ],
)
def test_escape_sequences_are_dropped_also_across_chunks(shown, text):
    assert Plain().feed(shown) == text
    plain = Plain()
    assert b"".join(plain.feed(bytes([byte])) for byte in shown) == text


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_escape_comes_through_and_cuts_change_nothing(data, cut):
    whole, parts = Plain(), Plain()
    text = whole.feed(data)
    assert parts.feed(data[:cut]) + parts.feed(data[cut:]) == text
    assert not {0x1B, 0x0D, 0x07, 0x7F} & set(text)


@pytest.mark.parametrize(
    ("shown", "text", "uncoloured"),
    [
        ("plain é 字\ttext\r\n", "plain é 字\ttext\r\n", None),
        ("\x1b[1;38:5:9mred\x1b[mend", "\x1b[1;38:5:9mred\x1b[mend", "redend"),
        ("\x1b[?1mx", "x", None),
        ("\x1b[>4;1mx", "x", None),
        ("\x1b[2Jx\x1b[1;1Hy\x1b[6nz", "xyz", None),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "xlink", None),
        ("\x9b2Jx\x90y\x85", "2Jxy", None),
        ("\x1b[" + "1" * 100 + "mx", "x", None),
        ("\x1b[1\rmx\ry", "x\ry", None),
        ("\x1b[1\x1b[31mx", "\x1b[31mx", "x"),
        ("a\x08\x07\x00\x7fb", "ab", None),
    ],
)
def test_a_terminal_gets_text_and_colours(shown, text, uncoloured):
    coloured = Coloured(colours=True)
    assert coloured.feed(shown) == text
    assert coloured.end() == ("\x1b[0m" if "\x1b" in text else "")
    single = Coloured(colours=True)
    assert "".join(map(single.feed, shown)) == text
    without = Coloured(colours=False)
    assert (without.feed(shown), without.end()) == (text if uncoloured is None else uncoloured, "")


ACTING = st.sampled_from(list("\x1b[]0;1m?<JHn\x07\\\x9b\x18\x1aPX(B\r\n\tax字"))


@given(st.text(ACTING | st.characters(), max_size=60), st.integers(0, 60))
def test_no_sequence_but_a_colour_reaches_a_terminal_and_cuts_change_nothing(text, cut):
    whole, parts = Coloured(colours=True), Coloured(colours=True)
    shown = whole.feed(text)
    assert parts.feed(text[:cut]) + parts.feed(text[cut:]) == shown
    rest = re.sub(r"\x1b\[[0-9;:]*m", "", shown)
    assert not {chr(code) for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))} & set(rest)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_typed_input_is_passed_on_until_the_escape(data, cut):
    whole, parts = Leaving(), Leaving()
    first = parts.feed(data[:cut])
    rest = b"" if parts.left else parts.feed(data[cut:])
    assert (first + rest, parts.left) == (whole.feed(data), whole.left)
