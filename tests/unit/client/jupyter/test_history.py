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


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("1", "complete"),
        ("a = 1\nb = 2", "complete"),
        ("await x", "complete"),
        ("", "complete"),
        ("def f(x):", "incomplete"),
        ("def f(x):\n  x * 2", "incomplete"),
        ("def f(x):\n  x * 2\n", "complete"),
        ("(1,", "incomplete"),
        ("""x = '''""", "incomplete"),
        ("import = 7q", "invalid"),
        ("x = 1)", "invalid"),
        ("%time f()", "unknown"),
        ("len?", "unknown"),
    ],
)
def test_lines_are_a_whole_cell_or_not(code, status):
    assert is_complete("python", code)["status"] == status


def test_lines_of_other_languages_are_left_to_the_console():
    assert is_complete("bash", "for") == {"status": "unknown"}
    assert is_complete("python", "if x:\n    for y in z:")["indent"] == "        "
