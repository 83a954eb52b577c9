"""Looks at a shell: what is asked of it, and what its answer means."""

import pytest
from sandfleet_executor.worker.base import packets
from sandfleet_executor.worker.bash import looks


@pytest.mark.parametrize(
    ("code", "question"),
    [
        ("ec", "\\builtin compgen -c -f -- ec"),
        ("ls; ec", "\\builtin compgen -c -f -- ec"),
        ("cat da", "\\builtin compgen -f -- da"),
        ("echo $HO", "\\builtin compgen -v -- HO"),
        ("echo ${HO", "\\builtin compgen -v -- HO"),
        ("echo 'it", "\\builtin compgen -f -- it"),
        ("x=$(ec", "\\builtin compgen -c -f -- ec"),
        ("ls *$(rm", "\\builtin compgen -c -f -- rm"),
        ("cat a*b!", "\\builtin compgen -f -- 'a*b!'"),
    ],
)
def test_a_completion_asks_for_what_stands_at_its_place(code, question):
    assert looks.question("complete", code, len(code)) == question


def test_an_inspection_without_a_word_asks_nothing():
    assert looks.question("inspect", "ls ; ", 4) == ""
    assert "type -- ls" in looks.question("inspect", "ls -l", 1)


def test_matches_are_quoted_where_the_shell_needs_it():
    answer = packets.decode(looks.answer("complete", "cat m", 5, 0, b"my file\nmine\nmine\n")).header
    assert (answer["matches"], answer["start"], answer["end"]) == (["mine", "'my file'"], 4, 5)


@pytest.mark.parametrize(("detail", "text"), [(0, "f is a function"), (1, "f is a function\nf () { :; }")])
def test_the_body_of_a_function_is_shown_where_it_is_asked_for(detail, text):
    found = packets.decode(looks.answer("inspect", "f", 1, detail, b"f is a function\nf () { :; }\n"))
    assert (found.header["found"], found.payload.decode()) == (True, text)
