"""How a request is shown to a reviewer."""

import pytest
from sandfleet.cli.fleets.waiting import in_words, text_of
from sandfleet.values.reviews import Review


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{}", ""),
        ('{"timeout": "60s", "rollBackOnFailure": true, "stdin": false}', "timeout 60s; roll back on failure"),
        ('{"envs": {"A": "1; sudo true"}, "argv": ["ls", "-l"], "user": ""}', 'envs A="1; sudo true"; argv ls, -l'),
        ('{"onFailure": "ON_FAILURE_KEEP", "contextId": "default"}', "on failure keep; context id default"),
        ("no JSON", "no JSON"),
        ("[1]", "[1]"),
    ],
)
def test_settings_are_words(settings, words):
    assert in_words(settings) == words
    shown = text_of(Review("box", "r1", "command", b"ls", settings=settings), colours=False)
    assert ("settings:" in shown) == bool(words)


def test_a_diff_is_to_an_earlier_version_and_not_to_another_cell():
    before = b"import csv\nrows = list(csv.reader(open('a.csv')))\nprint(len(rows))\n"
    changed = before.replace(b"a.csv", b"b.csv")
    assert "+rows = list(csv.reader(open('b.csv')))" in Review("box", "r", "cell", changed, approved_before=before).diff
    assert Review("box", "r", "cell", b"import os\nos.remove('a.csv')\n", approved_before=before).diff == ""
    line = Review("box", "r", "cell", b"total = 42", approved_before=b"total = 41")
    assert line.diff.endswith("-total = 41\n+total = 42")
    assert Review("box", "r", "cell", b"df.price.sum()", approved_before=b"df.head()").diff == ""
    # A file is the same file, whatever is in it.
    assert Review("box", "r", "file", b"new\n", approved_before=b"old\n").diff
