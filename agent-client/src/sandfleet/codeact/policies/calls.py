"""The functions that a model may call instead of writing a fence, and the shapes in which models write calls. Pure.

An endpoint hands calls over as `tool_calls`. Where it knows nothing of a model's template, the call stays in the text,
each family in its own way: Qwen and Hermes `<tool_call>{…}</tool_call>`, Qwen-Coder `<function=…><parameter=…>`, Llama
bare JSON or `<function=…>{…}`, Mistral `[TOOL_CALLS]…`, DeepSeek `<|tool_call_begin|>…` with full-width bars, gpt-oss
`to=functions.…`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from sandfleet.codeact.conversation import Call
from sandfleet.codeact.policies.blocks import without_fence

RUN, ANSWER, GIVE_UP = "run_code", "final_answer", "give_up"
# What models call by themselves, mapped to what is meant and the language where the name says it.
_NAMES = {
    RUN: (RUN, ""),
    "run_python": (RUN, "python"),
    "python": (RUN, "python"),
    "ipython": (RUN, "python"),
    "python_interpreter": (RUN, "python"),
    "code_interpreter": (RUN, "python"),
    "execute_python": (RUN, "python"),
    "execute_ipython_cell": (RUN, "python"),
    "execute": (RUN, ""),
    "execute_code": (RUN, ""),
    "bash": (RUN, "bash"),
    "shell": (RUN, "bash"),
    "execute_bash": (RUN, "bash"),
    "run_command": (RUN, "bash"),
    ANSWER: (ANSWER, ""),
    GIVE_UP: (GIVE_UP, ""),
}
_CODE = ("code", "command", "cmd", "input", "script", "source", "query", "python")
_MOST = 64

_FUNCTION_XML = re.compile(r"<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER_XML = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_INVOKE_XML = re.compile(r"<invoke name=\"([\w.-]+)\">(.*?)</invoke>", re.DOTALL)
_INVOKE_PARAMETER = re.compile(r"<parameter name=\"([\w.-]+)\"[^>]*>\n?(.*?)\n?</parameter>", re.DOTALL)
_DEEPSEEK = re.compile(
    r"<\uff5ctool▁call▁begin\uff5c>(?:function<\uff5ctool▁sep\uff5c>)?([\w.-]+)(?:<\uff5ctool▁sep\uff5c>)?\s*(?:```json\s*)?(\{.*?\})\s*(?:```\s*)?<\uff5ctool▁call▁end\uff5c>",
    re.DOTALL,
)
_HARMONY = re.compile(r"to=(?:functions\.)?([\w.-]+).*?<\|message\|>(.*?)(?:<\|call\|>|<\|end\|>|\Z)", re.DOTALL)
_MISTRAL_ARGS = re.compile(r"\[TOOL_CALLS\]\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?\[ARGS\]\s*", re.DOTALL)
# Where a JSON value that is a call begins.
_JSON_BEGINS = re.compile(
    r"(?:<tool_call>|<function_call>|<functioncall>|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call\|>)\s*(?=[\[{])"
)
_PYTHONIC = re.compile(r"\A\[?\s*([a-z_]+)\(\s*(code|command|answer)\s*=\s*(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')")


def schemas(*, needs_evidence: bool) -> list[dict[str, Any]]:
    """The functions as an OpenAI-compatible endpoint wants them in `tools`."""
    answer: dict[str, Any] = {"answer": {"type": "string", "description": "The answer, as it was printed."}}
    if needs_evidence:
        text = "The number of the execution in whose output the answer stands."
        answer["execution"] = {"type": "integer", "description": text}
    else:
        answer["answer"]["description"] = "The answer."
    run = {
        "code": {"type": "string", "description": "The code of one cell, or the lines of a shell script."},
        "language": {"type": "string", "enum": ["python", "bash"]},
    }
    return [
        _schema(RUN, "Run code in the sandbox. Python keeps its variables from one call to the next.", run, ["code"]),
        _schema(ANSWER, "Give the final answer of the task.", answer, list(answer)),
        _schema(GIVE_UP, "Say that there is no way on.", {"reason": {"type": "string"}}, ["reason"]),
    ]


def _schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def kind(call: Call) -> str:
    """Which of the functions is meant; "" for an unknown name."""
    return _meant(call)[0]


def _meant(call: Call) -> tuple[str, str]:
    # Marks of a model's template may hang on the name.
    name = re.split(r"<\||\s", call.name.strip(), maxsplit=1)[0].removeprefix("functions.")
    return _NAMES.get(name.lower(), ("", ""))


def arguments(call: Call) -> dict[str, Any] | None:
    """The arguments of a call; None where they are no JSON object. Code that stands there bare is taken as `code`."""
    text = call.arguments.strip() or "{}"
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        # Models call a function `python` with the bare code, though they were told of JSON.
        bare = kind(call) == RUN and text and not text.startswith("{")
        return {"code": call.arguments} if bare else None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        # Encoded twice.
        value = _decoded(value.lstrip(), 0)
    if isinstance(value, str):
        return {"code": value} if kind(call) == RUN else {"answer": value}
    return value if isinstance(value, dict) else None


def is_whole(call: Call) -> bool:
    """Whether the arguments were written to their end, which only JSON can tell."""
    try:
        json.loads(call.arguments, strict=False)
    except ValueError:
        return False
    return True


def code(call: Call, given: dict[str, Any]) -> tuple[str, str] | None:
    """The code of a call and its language; None where it has none."""
    found = next((given[name] for name in _CODE if isinstance(given.get(name), str | list)), None)
    found = "\n".join(map(str, found)) if isinstance(found, list) else found
    if found is None or not found.strip():
        return None
    found, named = without_fence(found), _meant(call)[1]
    shell = "command" in given or "cmd" in given
    return found, str(given.get("language") or named or ("bash" if shell else "python")).lower()


def in_text(text: str) -> tuple[tuple[Call, ...], int]:
    """The calls that a model wrote into its text, and where the first begins. Unknown functions are left out."""
    for find in (_deepseek, _mistral, _tagged_json, _xml, _harmony, _bare_json, _pythonic):
        calls = [(call, start) for call, start in find(text) if kind(call)][:_MOST]
        if calls:
            return tuple(call for call, _ in calls), calls[0][1]
    return (), len(text)


def _deepseek(text: str) -> Iterator[tuple[Call, int]]:
    for match in _DEEPSEEK.finditer(text):
        yield Call(match[1], match[2]), max(0, text.rfind("<\uff5ctool▁calls▁begin\uff5c>", 0, match.start() + 1))


def _mistral(text: str) -> Iterator[tuple[Call, int]]:
    for match in _MISTRAL_ARGS.finditer(text):
        if (found := _decoded(text, match.end())) is not None:
            yield Call(match[1], json.dumps(found)), match.start()


def _tagged_json(text: str) -> Iterator[tuple[Call, int]]:
    for match in _JSON_BEGINS.finditer(text):
        value = _decoded(text, match.end())
        for each in value if isinstance(value, list) else [value]:
            if (call := _call(each)) is not None:
                yield call, match.start()


def _xml(text: str) -> Iterator[tuple[Call, int]]:
    for shape, parameter in ((_FUNCTION_XML, _PARAMETER_XML), (_INVOKE_XML, _INVOKE_PARAMETER)):
        for match in shape.finditer(text):
            parameters = dict(parameter.findall(match[2]))
            # A parameter that does not end makes the call malformed, not code.
            broken = not parameters and "<parameter" in match[2]
            given = "{" if broken else json.dumps(parameters) if parameters else match[2].strip()
            yield Call(match[1], given), match.start()


def _harmony(text: str) -> Iterator[tuple[Call, int]]:
    if "<|channel|>" in text or "<|message|>" in text:
        for match in _HARMONY.finditer(text):
            yield Call(match[1], match[2].strip()), match.start()


def _bare_json(text: str) -> Iterator[tuple[Call, int]]:
    bare = text.strip().removeprefix("```").removeprefix("json").removesuffix("```").strip()
    if bare.startswith(("{", "[{")):
        value = _decoded(bare, 0)
        for each in value if isinstance(value, list) else [value]:
            if (call := _call(each)) is not None:
                yield call, 0


def _pythonic(text: str) -> Iterator[tuple[Call, int]]:
    # Llama 3.2 and 4: [run_code(code="print(1)")].
    if match := _PYTHONIC.match(text.strip()):
        quoted = match[3]
        value = _decoded(quoted, 0) if quoted[0] == '"' else quoted[1:-1].replace("\\n", "\n").replace("\\'", "'")
        yield Call(match[1], json.dumps({match[2]: value})), 0


def _decoded(text: str, start: int) -> Any:
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, start)[0]
    except ValueError:
        return None


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict):
        return None
    value = value.get("function") if isinstance(value.get("function"), dict) else value
    name = value.get("name")
    given = next((value[key] for key in ("arguments", "parameters", "args", "input") if key in value), None)
    if not isinstance(name, str):
        return None
    return Call(name, given if isinstance(given, str) else json.dumps({} if given is None else given))
