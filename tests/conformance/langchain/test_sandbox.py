"""LangChain's standard tests of a sandbox."""

from collections.abc import Iterator

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests
from sandfleet import Sandbox
from sandfleet.integrations.langchain import SandfleetBackend


class TestSandfleet(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandfleetBackend]:
        with Sandbox.create() as sandbox:
            yield SandfleetBackend(sandbox)
