"""How a chat model speaks to the loop: the system prompt, the messages of a conversation, and what a reply means. Pure."""

import re
from typing import TypedDict

from sandfleet.codeact.conversation import Action, Conversation, FinalAnswer, GiveUp, RunCode, RunCommand, Step
from sandfleet.codeact.observe import cut

SYSTEM_PROMPT = """\
You solve tasks by writing and running code in a Linux sandbox of your own.

Each of your replies is one short sentence that says what you intend, and then exactly one action:

1. Python, run in a live interpreter that keeps its variables, imports and working directory from one reply to the next. The value of the last expression is shown:
```python
print(6 * 7)
```

2. A shell command, run in /workspace:
```bash
ls -l
```

3. The final answer, once an execution has printed it:
FINAL ANSWER (execution N): value

4. If there is no way on:
GIVE UP: reason

After each action you get an observation. It begins with the number of the execution, and an error comes first.
- Compute everything with code, and print what you are going to answer. An answer is checked: the value has to stand in the output of the execution N that you name. Write the bare value, without words; several values are separated by ";" ("slope = 0.5; intercept = 2").
- When something fails, read the error, change the code and run it again.
- Your files are in /workspace and last. When an observation says that something was lost, make it again before you use it.
- There is no network, nobody to ask, and no input().
"""

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_ANSWER = re.compile(
    r"FINAL ANSWER\W{0,3}\(?\s*execution\s*#?(\d{1,6})\s*\)?[*_]{0,2}\s*:[*_]{0,2}\s*(.+)", re.IGNORECASE | re.DOTALL
)
_GIVE_UP = re.compile(r"^\W{0,3}GIVE UP\W{0,3}:\s*(.+)", re.IGNORECASE | re.DOTALL | re.MULTILINE)
_SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh"})
_PYTHONS = frozenset({"", "python", "py", "python3", "ipython"})
_INTENT = 300


class Message(TypedDict):
    role: str
    content: str


def messages(conversation: Conversation, *, budget: int) -> list[Message]:
    """The conversation as chat messages: system prompt, task, and the newest steps that fit into `budget` characters."""
    newest: list[Message] = []
    used = 0
    for step in reversed(conversation.steps):
        turn = _turn(step, budget // 2)
        used += sum(len(message["content"]) for message in turn)
        if newest and used > budget:
            break
        newest = turn + newest
    left_out = len(conversation.steps) - len(newest) // 2
    note = f"\n\n[{left_out} earlier steps are left out here.]" if left_out else ""
    task = Message(role="user", content=f"Task: {conversation.task}{note}")
    return [Message(role="system", content=SYSTEM_PROMPT), task, *newest]


def is_cut_off(reply: str) -> bool:
    """Whether a code block was opened and never closed."""
    return len(re.findall(r"^[ \t]*```", reply, re.MULTILINE)) % 2 == 1


def parse(reply: str, conversation: Conversation) -> Action:
    """The action in a reply. Code goes before an answer: who still wants to run something has not seen its output.

    A reply without any action is an answer that names no execution, which the loop rejects with words that help.
    """
    fence = _FENCE.search(reply)
    if fence:
        return _code(fence, reply)
    answer = _ANSWER.search(reply)
    if answer:
        value = answer[2].strip().strip("*`").strip()
        return FinalAnswer(value, _execution_id(int(answer[1]), conversation), intent=_intent(reply[: answer.start()]))
    give_up = _GIVE_UP.search(reply)
    if give_up:
        return GiveUp(give_up[1].strip())
    return FinalAnswer(reply.strip()[:2000], "")


def _code(fence: re.Match[str], reply: str) -> Action:
    language, code, intent = fence[1].lower(), fence[2], _intent(reply[: fence.start()])
    if language in _SHELLS:
        return RunCommand(code.strip(), intent)
    return RunCode(code, "python" if language in _PYTHONS else language, intent)


def _execution_id(number: int, conversation: Conversation) -> str:
    step = conversation.steps[number - 1] if 1 <= number <= len(conversation.steps) else None
    return step.evidence.execution_id if step and step.evidence else f"execution {number}"


def _intent(text: str) -> str:
    return " ".join(text.split())[:_INTENT]


def _turn(step: Step, limit: int) -> list[Message]:
    said = cut("\n".join(part for part in (step.intent, _written(step, limit)) if part), limit)
    return [Message(role="assistant", content=said), Message(role="user", content=cut(step.observation, limit))]


def _written(step: Step, limit: int) -> str:
    match step.action:
        case RunCode(code=code, language=language):
            return f"```{language}\n{cut(code.rstrip(), limit)}\n```"
        case RunCommand(command=command):
            line = command if isinstance(command, str) else " ".join(command)
            return f"```bash\n{cut(line, limit)}\n```"
        case FinalAnswer() as answer:
            return f"FINAL ANSWER: {'; '.join(str(value) for value in answer.values)}"
        case GiveUp(reason=reason):
            return f"GIVE UP: {reason}"
