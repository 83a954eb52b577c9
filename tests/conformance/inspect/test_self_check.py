"""Inspect's own checks of a SandboxEnvironment."""

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 - the suite is collected from here
from sandfleet.integrations.inspect import SandfleetEnvironment

# What a sandbox with one user cannot do.
ANOTHER_USER = {"test_exec_as_user"}


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[SandfleetEnvironment]:
    if request.node.originalname in ANOTHER_USER:
        request.applymarker(pytest.mark.xfail(reason="a sandbox has one user", strict=True))
    made = await SandfleetEnvironment.sample_init()
    yield made["default"]
    await SandfleetEnvironment.sample_cleanup("", None, made, False)
