"""What a model is told of the sandbox and of how to speak to the loop. Pure."""

from collections.abc import Sequence

_BEGIN = "You solve tasks by writing and running code in a Linux sandbox of your own.\n"

_FENCES = """
Each of your replies is one short sentence that says what you intend, and then exactly one action:

1. Python, run in a live interpreter that keeps its variables, imports and working directory from one reply to the next. The value of the last expression is shown:
```python
print(6 * 7)
```

2. A shell command, run in /workspace:
```bash
ls -l
```

3. {answer}

4. If there is no way on:
GIVE UP: reason

After each action you get an observation. It begins with the number of the execution, and an error comes first. Several blocks of one language are run in order as one cell. End your reply after the code: never write the observation yourself.
"""
_ANSWER_FENCE = "The final answer, once an execution has printed it:\nFINAL ANSWER (execution N): value"
_FREE_ANSWER_FENCE = "The final answer, everything after the colon:\nFINAL ANSWER: text"

_TOOLS = """
In each of your replies say in one short sentence what you intend, and call exactly one function:

- run_code(code, language): language "python" is a live interpreter that keeps its variables, imports and working directory from one call to the next, and shows the value of the last expression; "bash" is a shell command, run in /workspace.
- {answer}
- give_up(reason), if there is no way on.

Each call of run_code returns an observation. It begins with the number of the execution, and an error comes first.
"""
_ANSWER_TOOL = "final_answer(answer, execution), once an execution has printed the answer: `execution` is its number."
_FREE_ANSWER_TOOL = "final_answer(answer), with the whole answer as text."

_EVIDENCE = """\
- Compute everything with code, and print what you are going to answer. An answer is checked: the value has to stand in the output of the execution N that you name. Write the bare value, without words; several values are separated by ";" ("slope = 0.5; intercept = 2").
"""
_REST = """\
- When something fails, read the error, change the code and run it again.
- Your files are in /workspace and last. When an observation says that something was lost, make it again before you use it.
- There is no network, no user to ask, and no input().
"""


_HOST_TOOLS = """\
- Beside the sandbox there are tools of the host. In Python they are functions of the module `tools`, which needs no import, so that loops and conditions can use them: `tools.NAME(...)`, or `await tools.NAME.aio(...)`. In a shell: `tool NAME --argument value`. A call that fails raises `tools.ToolError`.
```python
{stubs}
```
"""

_SKILLS = """\
- The package `skills` has functions that were written and tested in earlier sessions. Import them: `from skills import NAME`, then `NAME.function(...)`.
```python
{stubs}
```
"""


def system(
    *,
    tools: bool = False,
    needs_evidence: bool = True,
    instructions: str = "",
    stubs: Sequence[str] = (),
    skills: Sequence[str] = (),
) -> str:
    """The system prompt.

    tools           the model calls functions instead of writing fences.
    needs_evidence  an answer is checked against the output of an execution.
    instructions    the user's own, at the end, where models heed them best.
    stubs           tools of the host that code can call, as Python without bodies. skills: the same of skills.
    """
    if tools:
        answer = _ANSWER_TOOL if needs_evidence else _FREE_ANSWER_TOOL
    else:
        answer = _ANSWER_FENCE if needs_evidence else _FREE_ANSWER_FENCE
    shape = (_TOOLS if tools else _FENCES).format(answer=answer)
    own = f"\n{instructions.strip()}\n" if instructions.strip() else ""
    host = _HOST_TOOLS.format(stubs="\n\n".join(stubs)) if stubs else ""
    learned = _SKILLS.format(stubs="\n\n".join(skills)) if skills else ""
    return f"{_BEGIN}{shape}{_EVIDENCE if needs_evidence else ''}{_REST}{host}{learned}{own}"
