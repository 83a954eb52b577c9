"""Shapes of a call: awaited, or entered with `async with`; read with `async for`; of an object, or of a class by id."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar, overload


class _Entered(Protocol):
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


Opened = TypeVar("Opened", bound=_Entered)
Owner = TypeVar("Owner")
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Named = TypeVar("Named")
Own = ParamSpec("Own")
ById = ParamSpec("ById")


class Opening(Coroutine[Any, Any, Opened], Generic[Opened]):
    """The answer of a call that opens something: `await` it, or enter it at once with `async with`.

    It is a coroutine, so `asyncio.create_task` and `asyncio.run` take it as well.
    """

    def __init__(self, call: Coroutine[Any, Any, Opened]) -> None:
        self._call = call
        self._opened: Opened | None = None

    if not TYPE_CHECKING:
        # Type checkers have their own word for this mistake.
        def __getattr__(self, name: str) -> Any:
            why = "of a call that was not awaited: write `await …`, or `async with … as`"
            # Names of coroutines are looked for by the standard library.
            raise AttributeError(name if name.startswith(("_", "cr_")) else f"cannot use {name!r} {why}")

    def send(self, value: Any, /) -> Any:
        """As of any coroutine."""
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        """As of any coroutine."""
        return self._call.throw(*error)

    def close(self) -> None:
        """As of any coroutine."""
        self._call.close()

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._call.__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._call
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


class Items(AsyncGenerator[Item, None]):
    """The answer of a call that yields: `async for`, or `anext`. Other ways to read it are told the right one."""

    def __init__(self, items: AsyncGenerator[Item, None], call: str) -> None:
        self._items = items
        self._call = call

    def __anext__(self) -> Coroutine[Any, Any, Item]:
        """As of any generator."""
        return anext(self._items)

    async def asend(self, value: None, /) -> Item:
        """As of any generator."""
        return await self._items.asend(value)

    async def athrow(self, *error: Any) -> Item:
        """As of any generator."""
        return await self._items.athrow(*error)

    async def aclose(self) -> None:
        """As of any generator."""
        await self._items.aclose()

    if not TYPE_CHECKING:
        # Type checkers have their own words for these mistakes.
        def __iter__(self) -> NoReturn:
            raise TypeError(f"cannot iterate over {self._call}() so: write `async for … in`")

        def __await__(self) -> NoReturn:
            raise TypeError(
                f"cannot await {self._call}(), which yields many: write `async for … in`, or `await anext(…)`"
            )


class OwnOrById(Generic[Owner, Own, Answer, ById, Named]):
    """A call of an object, which its class takes with an id: `sandbox.kill()`, `Sandbox.kill("sb-1")`."""

    def __init__(self, own: Callable[Concatenate[Owner, Own], Answer], by_id: Callable[ById, Named]) -> None:
        self.__doc__ = own.__doc__
        self.__wrapped__ = own
        self._by_id = by_id

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[ById, Named]: ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Callable[Own, Answer]: ...
    def __get__(self, instance: Owner | None, owner: type) -> Callable[ById, Named] | Callable[Own, Answer]:
        return self._by_id if instance is None else MethodType(self.__wrapped__, instance)


def also_by_id(
    by_id: Callable[ById, Named],
) -> Callable[[Callable[Concatenate[Owner, Own], Answer]], OwnOrById[Owner, Own, Answer, ById, Named]]:
    """Give the class of a method a call of the same name that takes an id."""
    return lambda own: OwnOrById(own, by_id)
