"""What a console of Jupyter asks about cells."""

import pytest
from sandfleet.jupyter.history import History, is_complete


@pytest.fixture
def past():
    found = History()
    for number, code in enumerate(["a = 1", "a", "b = 2", "a"], 1):
        found.add(number, code, None)
    return found


@pytest.mark.parametrize(
    ("request_", "numbers"),
    [
        ({"hist_access_type": "tail", "n": 2}, [3, 4]),
        ({"hist_access_type": "tail", "n": 10}, [1, 2, 3, 4]),
        ({"hist_access_type": "range", "session": 0, "start": 2, "stop": 3}, [2]),
        ({"hist_access_type": "range", "session": 1, "start": 1, "stop": 3}, []),
        ({"hist_access_type": "range", "session": 0, "start": -1}, [4]),
        ({"hist_access_type": "search", "pattern": "a*"}, [1, 2, 4]),
        ({"hist_access_type": "search", "pattern": "a*", "unique": True}, [1, 4]),
        ({"hist_access_type": "search", "pattern": "a*", "n": 1}, [4]),
        ({"n": "x", "pattern": 3}, [1, 2, 3, 4]),
    ],
)
def test_cells_are_found(past, request_, numbers):
    assert [number for _, number, _ in past.ask(request_)] == numbers


def test_lines_of_other_languages_are_left_to_the_console():
    assert is_complete("bash", "for") == {"status": "unknown"}
    assert is_complete("python", "def f():")["status"] == "incomplete"
    assert is_complete("python", "def f():")["indent"] == "    "
