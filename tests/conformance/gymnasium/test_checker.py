"""Gymnasium's own checker."""

from contextlib import closing

import pytest
from gymnasium.utils.env_checker import check_env
from sandfleet.integrations.gymnasium import SandfleetEnv


def test_check_env(recwarn: pytest.WarningsRecorder) -> None:
    with closing(SandfleetEnv(lambda _, generator: (str(generator.integers(9)), lambda ended: (1.0, ended.ok)))) as env:
        check_env(env)
    assert [str(each.message) for each in recwarn if "not having a spec" not in str(each.message)] == []
