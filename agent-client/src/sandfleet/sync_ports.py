"""Forwarded ports without `await`: see `sandfleet.sync`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sandfleet._background import mirrors, run
from sandfleet.ports import AsyncForward


@mirrors(AsyncForward)
class Forward:
    def __init__(self, forward: AsyncForward) -> None:
        self._async = forward

    @property
    def port(self) -> int:
        return self._async.port

    @property
    def local_port(self) -> int:
        return self._async.local_port

    @property
    def address(self) -> str:
        return self._async.address

    @property
    def closed(self) -> bool:
        return self._async.closed

    def close(self) -> None:
        return run(self._async.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
