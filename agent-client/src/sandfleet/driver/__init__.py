"""Thousands of agent loops in one process.

    driver = FleetDriver(options=DriverOptions(concurrency=200))
    async for result in driver.run(make_agent, tasks, checkpoint="run.sqlite"):
        print(result.key, result.end, result.answer)

`make_agent(sandbox, task)` returns a `CodeActAgent` on a sandbox that the driver has claimed and will release.
"""

from sandfleet.driver.checkpoint import CheckpointError
from sandfleet.driver.driver import DriverOptions, FleetDriver
from sandfleet.driver.parking import FixedParking, LearnedParking, NoParking, Parking
from sandfleet.driver.progress import Bar, Progress
from sandfleet.driver.result import Blame, Spent, TaskEnd, TaskResult
from sandfleet.driver.session import Bounds, MakeAgent
from sandfleet.driver.task import AgentTask, Checker

__all__ = [
    "AgentTask",
    "Bar",
    "Blame",
    "Bounds",
    "Checker",
    "CheckpointError",
    "DriverOptions",
    "FixedParking",
    "FleetDriver",
    "LearnedParking",
    "MakeAgent",
    "NoParking",
    "Parking",
    "Progress",
    "Spent",
    "TaskEnd",
    "TaskResult",
]
