"""Tools made of annotated functions: the signature gives parameters and schema, by pydantic."""

from __future__ import annotations

import inspect
import keyword
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, get_type_hints, overload

from sandfleet.errors import InvalidArgument, PreconditionFailed
from sandfleet.tools.tables import annotated
from sandfleet.values.tools import DescribedTool, Tool, ToolLimits, ToolParameter

if TYPE_CHECKING:
    from pydantic import BaseModel

# What the module `tools` in the sandbox has beside the tools.
RESERVED = frozenset({"ToolDenied", "ToolError", "ToolTimeout", "ToolUnavailable"})
MAX_TOOLS = 512
RETURNS, NEEDS = ("", "untrusted", "secret"), ("", "trusted")
_MAX_PROBLEMS = 5
# The types that tools of smolagents name; all others are taken as they are.
_SAID_TYPES: Mapping[Any, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class ToolOptions(TypedDict, total=False):
    """Options of `tool`.

    name        the name in the sandbox; the function's own without it.
    doc         what it does; the function's docstring without it.
    idempotent  whether a call may run again when it is not known whether it ran.
    limits      what it may be used for, as `ToolLimits`.
    cost        what a call costs of the budget in its limits, from its arguments; 1 without it.
    returns     "untrusted" where results may have content of others, as web pages and mails do; "secret" where they are
                secrets. The session is marked with it before the code gets the first result.
    needs       "trusted" for a tool that sends, pays or publishes: in a session that has received untrusted content a
                person has to approve each call.
    """

    name: str
    doc: str
    idempotent: bool
    limits: ToolLimits
    cost: Callable[[Mapping[str, Any]], float]
    returns: Literal["untrusted", "secret", ""]
    needs: Literal["trusted", ""]


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, as a call or as a decorator: `@tool(limits=ToolLimits(calls_per_session=10))`.

    The annotations of its parameters say what it takes; arguments are checked and converted by pydantic. A tool made of
    a tool is that one with other options. An object with `name`, `description`, `inputs` and a method `forward`, as
    tools of smolagents are, is taken as it describes itself. Raises InvalidArgument for a function whose parameters
    have no names, and PreconditionFailed without pydantic: it comes with the extra `sandfleet[tools]`.
    """
    if function is None:
        return lambda given: _of(given, options)
    return _of(function, options)


def tools_of(given: Sequence[Tool | DescribedTool | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Make tools of functions. Raises InvalidArgument where two have the same name, and as `tool`."""
    made = tuple(_of(each, {}) for each in given)
    if len({one.name for one in made}) != len(made):
        raise InvalidArgument("cannot offer the tools: two have the same name")
    if len(made) > MAX_TOOLS:
        raise InvalidArgument(f"cannot offer {len(made)} tools: the most is {MAX_TOOLS}")
    return made


def _of(function: Tool | DescribedTool | Callable[..., Any], options: ToolOptions) -> Tool:
    if isinstance(function, Tool):
        made = function
    elif _is_described(function):
        made = _described(function)
    else:
        made = _declared(cast("Callable[..., Any]", function), options)
    changed: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "returns" in changed:
        changed["gives"] = changed.pop("returns")
    made = replace(made, **changed)
    if made.gives not in RETURNS or made.needs not in NEEDS:
        words = 'returns is "untrusted" or "secret", and needs is "trusted"'
        raise InvalidArgument(f"cannot offer {made.name}: {words}", subject=made.name)
    if not made.name.isidentifier() or keyword.iskeyword(made.name) or made.name.startswith("_"):
        raise InvalidArgument(f"cannot offer a tool called {made.name!r}: give it a name that Python code can write")
    if made.name in RESERVED:
        raise InvalidArgument(f"cannot offer a tool called {made.name}: the module tools has an exception of that name")
    return made


def _is_described(given: Any) -> bool:
    """Whether it is an object that says what it is as tools of smolagents do, and does its work in `forward`."""
    return (
        not isinstance(given, type)
        and callable(getattr(given, "forward", None))
        and isinstance(getattr(given, "name", None), str)
        and isinstance(getattr(given, "inputs", None), Mapping)
    )


def _described(given: Any) -> Tool:
    """A tool as smolagents has them. Its own `setup` prepares it at its first call."""
    made = _declared(_forwarding(given), {})
    said = [f"    {name}: {each.get('description', '')}" for name, each in given.inputs.items()]
    doc = str(getattr(given, "description", ""))
    return replace(made, doc="\n".join([doc, "", "Args:", *said] if said else [doc]).strip())


def _forwarding(given: Any) -> Callable[..., Any]:
    """A function with the parameters that the tool names in `inputs`; its types win over the annotations."""
    parameters = sorted(
        (_said_parameter(name, each) for name, each in given.inputs.items()),
        key=lambda each: each.default is not each.empty,
    )
    returns = _said_type(getattr(given, "output_type", None), inspect.Signature.empty)
    preparing = threading.Lock()

    def call(**arguments: Any) -> Any:
        with preparing:
            if getattr(given, "is_initialized", True) is False:
                given.setup()
        return given.forward(**arguments)

    call.__name__ = given.name
    call.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _said_parameter(name: str, said: Mapping[str, Any]) -> inspect.Parameter:
    kind, place = _said_type(said.get("type"), Any), inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not said.get("nullable"):
        return inspect.Parameter(name, place, annotation=kind)
    return inspect.Parameter(name, place, annotation=kind if kind is Any else kind | None, default=None)


def _said_type(said: Any, otherwise: Any) -> Any:
    return _SAID_TYPES.get(said, otherwise) if isinstance(said, str) else otherwise


def _declared(function: Callable[..., Any], options: ToolOptions) -> Tool:
    name = options.get("name") or str(getattr(function, "__name__", ""))
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            why = f"its parameter {str(parameter)!r} cannot be given by a name"
            raise InvalidArgument(f"cannot make a tool of {name}: {why}")
    model = _model(name, function, signature)
    schema = {key: value for key, value in model.model_json_schema().items() if key != "title"}
    return Tool(
        name=name,
        doc=inspect.getdoc(function) or "",
        function=function,
        bind=lambda arguments: _bound(model, arguments),
        parameters=tuple(_parameter(each) for each in signature.parameters.values()),
        returns=_text(signature.return_annotation),
        schema=schema,
    )


def _parameter(parameter: inspect.Parameter) -> ToolParameter:
    default = None if parameter.default is parameter.empty else repr(parameter.default)
    return ToolParameter(parameter.name, _text(parameter.annotation), default, parameter.kind is parameter.KEYWORD_ONLY)


def _text(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _model(name: str, function: Callable[..., Any], signature: inspect.Signature) -> type[BaseModel]:
    """A model with a field for each parameter; their names may be those that pydantic keeps for itself."""
    try:
        from pydantic import ConfigDict, Field, create_model
    except ImportError as error:
        why = "pydantic is not installed; it comes with the extra sandfleet[tools]"
        raise PreconditionFailed(f"cannot make a tool of {name}: {why}", reason="PydanticMissing") from error
    hints = annotated(get_type_hints(function, include_extras=True))
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(signature.parameters.values()):
        required = parameter.default is parameter.empty
        field = Field(alias=parameter.name) if required else Field(alias=parameter.name, default=parameter.default)
        fields[f"p{number}"] = (hints.get(parameter.name, Any), field)
    try:
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        return create_model(name, __config__=config, **fields)
    except Exception as error:  # pydantic has several, for types that it cannot check
        raise InvalidArgument(f"cannot make a tool of {name}: {str(error).splitlines()[0]}") from error


def _bound(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the function gets them. Raises ValueError."""
    from pydantic import ValidationError

    try:
        checked = model.model_validate(dict(arguments))
    except ValidationError as error:
        raise ValueError(_problems(error.errors(include_url=False, include_context=False))) from None
    given = checked.model_fields_set
    return {str(field.alias): getattr(checked, name) for name, field in model.model_fields.items() if name in given}


def _problems(errors: Sequence[Any]) -> str:
    said = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in errors[:_MAX_PROBLEMS]]
    if more := len(errors) - len(said):
        said.append(f"and {more} more")
    return "; ".join(said)
