"""Tools that a host offers to the code in a sandbox, and what a policy decides about their calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """What one tool may be used for. A call beyond it is refused in the sandbox with ToolDenied, or ToolTimeout.

    timeout              seconds that one call may take.
    calls_per_execution  calls that one cell or command may make; None means no limit. The calls of a service count as
                         those of one execution.
    calls_per_session    calls that this server takes; None means no limit.
    concurrency          calls that may run at once; None means no limit.
    budget               what all calls that this server takes may cost together, in the unit of `Tool.cost`; None means
                         no limit.
    argument_bytes       size of the arguments of a call, as they are sent.
    result_bytes         size of a result, as it is sent; 16 MiB at most.
    """

    timeout: float = 60.0
    calls_per_execution: int | None = None
    calls_per_session: int | None = None
    concurrency: int | None = None
    budget: float | None = None
    argument_bytes: int = 1 << 20
    result_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """A parameter as it is shown in the sandbox.

    annotation    the type as Python writes it, or "".
    default       the default as Python writes it; None for a parameter that is required.
    keyword_only  whether it can be given by its name only.
    """

    name: str
    annotation: str = ""
    default: str | None = None
    keyword_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of the host that code in a brokered sandbox may call. `sandfleet.tool` makes one of a function.

    name        as the code calls it: `tools.NAME(...)`.
    doc         what it does, for people and models.
    function    runs it, with the checked arguments by name; it may be asynchronous.
    bind        checks arguments; raises ValueError for those that do not fit.
    parameters  its parameters, in their order.
    returns     the type of its result as Python writes it, or "".
    schema      JSON Schema of the arguments.
    limits      what it may be used for.
    idempotent  whether a call may run again when it is not known whether it ran: after the end of its host.
    gives       what its results and errors bring into the session: "untrusted", "secret", or "" for neither.
    needs       "trusted": it does not run without a person's word once the session has received untrusted content.
    cost        what a call costs of `ToolLimits.budget`, from its checked arguments, in a unit of yours: money, rows,
                tokens. It is charged before the call runs, and stays charged where the tool fails. Without it a call
                costs 1.
    """

    name: str
    doc: str
    function: Callable[..., Any]
    bind: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    parameters: tuple[ToolParameter, ...] = ()
    returns: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    limits: ToolLimits = ToolLimits()
    idempotent: bool = False
    gives: str = ""
    needs: str = ""
    cost: Callable[[Mapping[str, Any]], float] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function on this machine, as if it were no tool."""
        return self.function(*args, **kwargs)

    @property
    def stub(self) -> str:
        """The tool as Python code without a body, for prompts: `def NAME(...) -> ...:` with its docstring."""
        shown = [_shown(each) for each in self.parameters]
        first = next((at for at, each in enumerate(self.parameters) if each.keyword_only), None)
        if first is not None:
            shown.insert(first, "*")
        head = f"def {self.name}({', '.join(shown)}){f' -> {self.returns}' if self.returns else ''}:"
        doc = self.doc.strip().replace("\\", "\\\\").replace('"""', "'''")
        lines = [line.strip() and f"    {line}" for line in (f'"""{doc}"""' if doc else "...").splitlines()]
        return "\n".join([head, *lines])


def _shown(parameter: ToolParameter) -> str:
    default = "" if parameter.default is None else parameter.default
    if parameter.annotation:
        return f"{parameter.name}: {parameter.annotation}{f' = {default}' if default else ''}"
    return f"{parameter.name}{f'={default}' if default else ''}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a policy decides about.

    tool          the name of the tool.
    arguments     by name, as the code sent them, checked against the schema.
    execution_id  the cell or command that calls; "" for a service.
    context_id    the context of the cell; "" for commands and services.
    service       the name of the service that calls, or "".
    """

    tool: str
    arguments: Mapping[str, Any]
    execution_id: str = ""
    context_id: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True)
class ToolSession:
    """What a policy knows of the session.

    sandbox_id  the sandbox.
    calls       how many calls of each tool have run, this one not included.
    received    what the session has received from tools, as far as this host knows: "untrusted", "secret".
    """

    sandbox_id: str
    calls: Mapping[str, int]
    received: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decides: whether the call runs, and for one that does not, why; the code sees that.

    ask  whether a person is to decide, where it is not allowed: the `on_ask` of `serve_tools`. Without one the call
         waits as a review of the session, of the kind "tool", until a reviewer has answered.
    """

    allowed: bool
    why: str = ""
    ask: bool = False


# Takes all tools of a source, whenever it has others than before; on the event loop.
OnTools = Callable[[Sequence[Tool]], None]


class ToolSource(ABC):
    """Tools that are known when they are served, as those of an MCP server. `sandfleet.mcp_server` makes one."""

    __slots__ = ()

    @abstractmethod
    async def open(self, changed: OnTools) -> tuple[Sequence[Tool], Callable[[], Awaitable[None]]]:
        """Get the tools; also what ends the source. `changed` takes others later. Raises UnavailableError."""


@runtime_checkable
class DescribedTool(Protocol):
    """An object that says what it is, as tools of smolagents do, and does its work in `forward`."""

    name: str
    description: str
    inputs: Mapping[str, Any]

    @property
    def forward(self) -> Callable[..., Any]:
        """Do the work, with the arguments that `inputs` names."""
        ...


ToolPolicy = Callable[[ToolCall, ToolSession], Decision | Awaitable[Decision]]
AnyTool = Tool | ToolSource | DescribedTool | Callable[..., Any]
