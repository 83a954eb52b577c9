"""Services without `await`: see `sandfleet.sync`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from sandfleet._background import iterate, mirrors, run
from sandfleet.services import AsyncServices

if TYPE_CHECKING:
    from sandfleet.service_values import Applied, LogPiece, Probe, RestartPolicy, Service, ServiceSpec


@mirrors(AsyncServices)
class Services:
    def __init__(self, services: AsyncServices) -> None:
        self._async = services

    def start(
        self,
        name: str,
        cmd: str | Sequence[str | bytes] | None = None,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        ready: Probe | None = None,
        live: Probe | None = None,
        restart: RestartPolicy = "on-failure",
        after: Sequence[str] = (),
        grace: float | None = None,
    ) -> None:
        return run(
            self._async.start(
                name, cmd, cwd=cwd, envs=envs, ready=ready, live=live, restart=restart, after=after, grace=grace
            )
        )

    def apply(self, services: Iterable[ServiceSpec], *, keep_others: bool = False) -> Applied:
        return run(self._async.apply(services, keep_others=keep_others))

    def list(self) -> tuple[Service, ...]:
        return run(self._async.list())

    def wait_ready(self, name: str, timeout: float = 60.0) -> Service:
        return run(self._async.wait_ready(name, timeout))

    def stop(self, *names: str) -> None:
        return run(self._async.stop(*names))

    def stop_all(self) -> None:
        return run(self._async.stop_all())

    def restart(self, name: str) -> None:
        return run(self._async.restart(name))

    @overload
    def logs(
        self, name: str, *, follow: Literal[False] = False, tail: int | None = None, offset: int | None = None
    ) -> str: ...
    @overload
    def logs(
        self, name: str, *, follow: Literal[True], tail: int | None = None, offset: int | None = None
    ) -> Iterator[LogPiece]: ...
    def logs(
        self, name: str, *, follow: bool = False, tail: int | None = None, offset: int | None = None
    ) -> str | Iterator[LogPiece]:
        if follow:
            return iterate(run(self._async.logs(name, follow=True, tail=tail, offset=offset)))
        return run(self._async.logs(name, tail=tail, offset=offset))
