"""Runs in programs without an event loop."""

import traceback

import pytest
from sandfleet.driver import FleetDriver


class Driver(FleetDriver):
    def __init__(self, results):
        super().__init__()
        self.results, self.ended = results, False

    async def run(self, make_agent, tasks, **options):
        self.asked = (make_agent, tasks, options["concurrency"])
        for each in self.results:
            if isinstance(each, BaseException):
                raise each
            yield each

    async def __aexit__(self, *_):
        self.ended = True


def test_all_results_come_as_a_list():
    driver = Driver(["one", "two"])
    assert driver.run_sync(print, ["a"], concurrency=3) == ["one", "two"]
    assert (driver.asked, driver.ended) == ((print, ["a"], 3), True)


def test_ctrl_c_ends_the_sessions_and_has_a_short_traceback():
    driver = Driver(["one", KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt) as caught:
        driver.run_sync(print, ["a"])
    assert driver.ended
    assert "asyncio" not in "".join(traceback.format_exception(caught.value))
