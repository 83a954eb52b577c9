"""What a pure function remembers."""

import pytest
from sandfleet_operator.plan import remembered as module
from sandfleet_operator.plan.remembered import remembered


@pytest.fixture
def counted():
    @remembered
    def work(first, second=0):
        work.calls += 1
        return [first, second]

    work.calls = 0
    return work


class Template:
    """Equal to all others."""

    def __eq__(self, other):
        return True

    __hash__ = None


def test_the_same_first_argument_and_equal_others_are_asked_once(counted):
    template = Template()
    assert counted(template, {"a": 1}) is counted(template, {"a": 1})
    assert counted.calls == 1


def test_another_first_argument_is_asked_again_even_if_it_is_equal(counted):
    counted(Template(), 1)
    counted(Template(), 1)
    assert counted.calls == 2


def test_different_other_arguments_are_asked_again_and_both_remembered(counted):
    template = Template()
    for _ in range(2):
        assert (counted(template, 1)[1], counted(template, 2)[1]) == (1, 2)
    assert counted.calls == 2


def test_no_more_than_so_many_results_are_remembered(counted, monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    templates = [Template() for _ in range(4)]
    for one in templates:
        counted(one)
    counted(templates[3])
    assert counted.calls == 4
    counted(templates[0])
    assert counted.calls == 5
