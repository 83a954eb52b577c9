"""`--covers`: which RPCs, outcomes and calls of the client a run's tests have touched, and which not.

Each process of pytest-xdist records what its tests use of the classes of gRPC and of the client. The first process adds
it up. What programs do that tests start (the command line, a fleet of its own) is not seen.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import grpc._channel
import pytest
import sandfleet.resources
import sandfleet_api.executor.v1
import sandfleet_api.fleet.v1
from grpc.aio import _channel as channels
from sandfleet import AsyncFleet, AsyncSandbox, Execution, Outcome

KINDS = ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")
_OUTPUT = "sandfleet_touched"


def rpcs() -> Iterator[str]:
    """`/package.Service/Method` of each RPC in the protos."""
    for package in (sandfleet_api.executor.v1, sandfleet_api.fleet.v1):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            if found.name.endswith("_pb2"):
                for service in module.DESCRIPTOR.services_by_name.values():
                    yield from (f"/{service.full_name}/{method.name}" for method in service.methods)


def classes() -> Iterator[type]:
    """The client's classes that have calls: the sandbox, the fleet and the resources of a sandbox."""
    yield from (
        base for cls in (AsyncSandbox, AsyncFleet) for base in cls.__mro__ if base.__module__.startswith("sandfleet")
    )
    for found in pkgutil.walk_packages(sandfleet.resources.__path__, "sandfleet.resources."):
        module = importlib.import_module(found.name)
        yield from (
            cls
            for name, cls in vars(module).items()
            if inspect.isclass(cls)
            and cls.__module__ == module.__name__
            and not name.startswith("_")
            and not getattr(cls, "_is_protocol", False)
        )


def calls() -> Iterator[tuple[type, str]]:
    """Each public call of these classes."""
    for cls in dict.fromkeys(classes()):
        yield from (
            (cls, name) for name, value in vars(cls).items() if not name.startswith("_") and inspect.isfunction(value)
        )


class Touched:
    """What the tests of this process have touched."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._names: set[str] = set()
        self._wanted = 0
        self._missing: list[str] = []
        self._record()

    def _record(self) -> None:
        for kind in KINDS:
            cls = getattr(channels, f"{kind}MultiCallable")
            self._wrap(cls, "__call__", lambda call: call._method.decode())
            # A synchronous client of a test.
            sync = getattr(grpc._channel, f"_{kind}MultiCallable", None)
            if sync is not None:
                self._wrap(
                    sync,
                    "__call__",
                    lambda call: call._method.decode() if isinstance(call._method, bytes) else call._method,
                )
        for cls, name in calls():
            self._wrap(cls, name, lambda _self, cls=cls, name=name: f"{cls.__name__}.{name}")
        self._wrap(Execution, "__init__", lambda _self: "", after=lambda made: str(made.outcome))

    def _wrap(
        self, cls: type, name: str, before: Callable[[Any], str], after: Callable[[Any], str] | None = None
    ) -> None:
        original = vars(cls).get(name)
        if original is None:
            return

        @functools.wraps(original)
        def recorded(instance: Any, *arguments: Any, **options: Any) -> Any:
            self._names.add(before(instance))
            result = original(instance, *arguments, **options)
            if after:
                self._names.add(after(instance))
            return result

        setattr(cls, name, recorded)

    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = sorted(self._names)
            return
        wanted = {*rpcs(), *(f"{cls.__name__}.{name}" for cls, name in calls()), *map(str, Outcome)}
        self._wanted, self._missing = len(wanted), sorted(wanted - self._names)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._names.update(getattr(node, "workeroutput", {}).get(_OUTPUT, ()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if hasattr(self._config, "workeroutput"):
            return
        touched = self._wanted - len(self._missing)
        terminalreporter.write_line(f"touched {touched} of {self._wanted} RPCs, outcomes and calls of the client")
        if self._missing:
            terminalreporter.write_line(f"not touched: {', '.join(self._missing)}")
