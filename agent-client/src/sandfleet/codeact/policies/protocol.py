"""What a model's reply means: something to run, an answer, or nothing with a reason that the model can read. Pure.

The rules, in this order:

1. Thinking is never run (`blocks`). Nothing of a reply that was cut off is run: half a block is another program.
2. A function that was called goes before the text around it, because it is the model's most explicit wish.
3. An answer that stands before the first block is an answer; the blocks behind it explain it. An answer behind a block
   is not taken: it was written before the output was there.
4. Several blocks are one cell, in the order in which they stand. The CodeAct paper and OpenHands take one action from a
   reply and stop the model behind it, which needs a stop word that not every endpoint obeys; what a model wrote behind
   it was lost. smolagents joins all blocks, and so does this: a model that writes an import block and a block that uses
   it means both. They have to be of one language. The first block decides; from the first block of the other language
   on, nothing is run, since one step is one execution, and the model is told what was left out. Blocks that name no
   language count only if none does.
5. What a model writes behind its code as the observation that it expects is its invention: nothing behind it counts.
"""

import re
from dataclasses import replace

from sandfleet.codeact.conversation import (
    Action,
    Call,
    Conversation,
    FinalAnswer,
    GiveUp,
    NoAction,
    RunCode,
    RunCommand,
    Said,
)
from sandfleet.codeact.observe import encodable
from sandfleet.codeact.policies import blocks, calls
from sandfleet.codeact.policies.blocks import DATA, PYTHON, SHELL, Block, Words, language_of

# "final answer" as models write it when they think in another language than the prompt's.
_MARKERS = (
    "FINAL ANSWER",
    "最终答案",
    "最終答案",
    "最终回答",
    "最終回答",
    "最終的な答え",
    "최종 답변?",
    "RESPUESTA FINAL",
    "R[ÉE]PONSE FINALE",
    "ENDGÜLTIGE ANTWORT",
    "FINALE ANTWORT",
    "RESPOSTA FINAL",
    "RISPOSTA FINALE",
    "ОКОНЧАТЕЛЬНЫЙ ОТВЕТ",  # noqa: RUF001  Russian
    "ИТОГОВЫЙ ОТВЕТ",  # noqa: RUF001  Russian
    "الإجابة النهائية",
    "अंतिम उत्तर",
)
_MARKER = "|".join(_MARKERS)
# "FINAL ANSWER (execution 3): 42", with any word for the execution, in any brackets or none.
_ANSWER = re.compile(
    rf"(?P<line>^[\s*_#>\-]{{0,8}})?(?:{_MARKER})"
    r"[*_`\s]{0,4}(?:[(\uff08\[](?P<named>[^\n()\uff08\uff09\]]{0,60})[)\uff09\]]|\W{0,3}execution\s*(?P<bare>\#?\d{1,6}))?"
    r"[*_`\s]{0,4}[:\uff1a][*_]{0,2}[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_TAG = re.compile(r"<(solution|answer|final_answer)>\s*(.*?)\s*</\1>", re.DOTALL | re.IGNORECASE)
_GIVE_UP = re.compile(r"^\W{0,3}GIVE UP\W{0,3}[:\uff1a]\s*(.+)", re.IGNORECASE | re.DOTALL | re.MULTILINE)
_INVENTED = re.compile(
    r"^\W{0,3}(?:\[execution \d+\]|(?:observation|execution result|code output)\W{0,3}:|<(?:observation|output|tool_response)>)",
    re.IGNORECASE | re.MULTILINE,
)
_INTENT = 300
_LARGEST_REPLY = 1_000_000
_LARGEST_ANSWER = 20_000

# Why an endpoint ended a reply before its end.
_CUT = frozenset({"length", "max_tokens", "model_length", "content_filter", "error"})
CUT_OFF = "your reply was cut off before its end. Be shorter: do less in one step."


def parse(reply: Said | str, conversation: Conversation, *, finish: str = "stop", tools: bool = False) -> Action:
    """The action in a reply. Never raises.

    finish  why the endpoint ended the reply; "length" means that it was cut off.
    tools   the model was offered functions. Both protocols are understood; the reasons name the one that was agreed on.
    """
    said = Said(reply) if isinstance(reply, str) else reply
    if len(said.text) > _LARGEST_REPLY:
        said = replace(said, text=said.text[:_LARGEST_REPLY])
        return NoAction(f"your reply is longer than {_LARGEST_REPLY:,} characters. Do less in one step.", said=said)
    words = blocks.read(said.text)
    action = _of_calls(said.calls, words, conversation, finish) if said.calls else _of_text(words, conversation, finish)
    if isinstance(action, NoAction) and action.reason != CUT_OFF:
        hint = _functions() if tools or said.calls else _reminder(needs_evidence=conversation.needs_evidence)
        action = replace(action, reason=f"{action.reason} {hint}")
    remark = action.said.remark if action.said else ""
    return replace(action, said=replace(said, remark=remark))


def _of_text(words: Words, conversation: Conversation, finish: str) -> Action:
    if not words.text.strip():
        return NoAction(_why_empty(words, finish))
    if words.thinking:
        return NoAction(CUT_OFF if finish in _CUT else _all_thought())
    written, start = _written_calls(words)
    if written:
        if finish in _CUT:
            return NoAction(CUT_OFF)
        before = Words(words.text[:start], thought=words.thought)
        return _of_calls(written, before, conversation, finish)
    runnable, others = _runnable(words)
    answer = _answer(words, runnable, conversation)
    cut_off = finish in _CUT and (answer or not runnable or not words.blocks[-1].closed)
    if cut_off:
        return NoAction(CUT_OFF)
    if answer is not None:
        return answer
    if runnable:
        return _code(words, runnable, others)
    give_up = _GIVE_UP.search(words.text)
    if give_up:
        return GiveUp(give_up[1].strip()[:2000], _intent(words.text[: give_up.start()]))
    return NoAction(_why_nothing(words), _intent(words.text))


def _written_calls(words: Words) -> tuple[tuple[Call, ...], int]:
    """The calls in a text, and where the first begins.

    What stands in code that is to be run is a text of the code's.
    """
    written, start = calls.in_text(words.text)
    runnable = (block for block in words.blocks if block.language not in DATA)
    if any(block.start < start < block.end for block in runnable):
        return (), len(words.text)
    return written, start


def _runnable(words: Words) -> tuple[list[Block], list[Block]]:
    """The blocks that may be run, and those of other kinds."""
    end = _end_of_own_words(words)
    own = [block for block in words.blocks if block.start < end and block.code.strip()]
    answered = _marker(words, 0, len(words.text))
    named = [block for block in own if block.language in PYTHON | SHELL]
    if not named:
        # A block without a language is Python, except where it holds the answer.
        named = [block for block in own if not block.language and not (answered and answered.start() < block.start)]
    if not named:
        named = [block for block in own if block.language and block.language not in DATA][:1]
    return named, [block for block in own if block not in named and block.language and block.language not in DATA]


def _end_of_own_words(words: Words) -> int:
    """Where a model begins to invent what its code will print."""
    first = next((block for block in words.blocks if block.language in PYTHON | SHELL or not block.language), None)
    if first is None:
        return len(words.text)
    position = first.end
    while invented := _INVENTED.search(words.text, position):
        inside = next((block for block in words.blocks if block.start <= invented.start() < block.end), None)
        if inside is None:
            return invented.start()
        position = inside.end
    return len(words.text)


def _code(words: Words, runnable: list[Block], others: list[Block]) -> Action:
    shell = runnable[0].language in SHELL
    joined = (n for n, block in enumerate(runnable) if n and not _joins(runnable[0], block))
    same = next(joined, len(runnable))
    run, left = runnable[:same], runnable[same:]
    intent = _intent(words.text[: run[0].start])
    said = Said(remark=_remark(words, run, left, others))
    if shell:
        return RunCommand("\n".join(block.code.strip() for block in run), intent, said)
    code = run[0].code if len(run) == 1 else "\n\n".join(block.code.rstrip("\n") for block in run) + "\n"
    return RunCode(code, language_of(run[0].language), intent, said)


def _joins(first: Block, block: Block) -> bool:
    """Whether two blocks can be one cell: of one language, and none of them a cell that a magic of IPython begins."""
    magic = any(each.code.lstrip().startswith("%%") for each in (first, block))
    return not magic and (first.language in SHELL) == (block.language in SHELL)


def _remark(words: Words, run: list[Block], left: list[Block], others: list[Block]) -> str:
    remarks = []
    if len(run) > 1:
        shown = "" if run[0].language in SHELL else "; only the value of its last expression is shown, print the others"
        remarks.append(
            f"the {len(run)} {run[0].language or 'code'} blocks of your reply were run in order as one cell{shown}"
        )
    if left:
        remarks.append(_left_out([block.language for block in left]))
    if others:
        remarks.append(
            f"not run: {', '.join(sorted({block.language for block in others}))}; one reply runs one language, python first"
        )
    answer = _marker(words, run[-1].end, len(words.text))
    end = _end_of_own_words(words)
    if end < len(words.text):
        remarks.append("what your reply shows after its code was not the observation but your guess, and was left out")
    elif answer:
        remarks.append("the answer in your reply was not taken, since it was written before this output was there")
    return ". ".join(remarks)


def _left_out(languages: list[str]) -> str:
    return (
        f"not run: the {', then '.join(languages)} after it. One reply runs one cell; write again what you still need"
    )


def _answer(words: Words, runnable: list[Block], conversation: Conversation) -> FinalAnswer | None:
    """The final answer of a reply that has nothing to run before it."""
    first = runnable[0].start if runnable else len(words.text)
    match = _marker(words, 0, first)
    if match is not None and runnable and conversation.needs_evidence and not _number(match):
        # A heading over the code ("Final answer: I compute it"), since an answer names its execution.
        return None
    if match is None:
        tagged = _ANSWER_TAG.search(words.text, 0, first)
        return FinalAnswer(encodable(tagged[2]), intent=_intent(words.text[: tagged.start()])) if tagged else None
    behind = words.text[match.end() :]
    holding = next((block for block in words.blocks if block.start >= match.end()), None)
    rest = ""
    if holding is not None and not words.text[match.end() : holding.start].strip():
        value = holding.code
    elif not conversation.needs_evidence:
        value = behind
    else:
        # What follows after an empty line explains the answer to people.
        value, _, rest = behind.strip().partition("\n\n")
    number = _number(match)
    execution_id = _execution_id(number, conversation) if number else ""
    bare = encodable(_bare(value)[:_LARGEST_ANSWER])
    return FinalAnswer(bare, execution_id, rest.strip()[:2000], _intent(words.text[: match.start()]))


def _marker(words: Words, start: int, end: int) -> re.Match[str] | None:
    """The mark of an answer outside of blocks. In the middle of a line it counts only where it names an execution."""
    for match in _ANSWER.finditer(words.text, start, end):
        inside = any(block.start <= match.start() < block.end for block in words.blocks)
        if not inside and (match["line"] is not None or _number(match)):
            return match
    return None


def _number(match: re.Match[str]) -> int:
    digits = re.search(r"\d{1,6}", match["named"] or match["bare"] or "")
    return int(digits[0]) if digits else 0


def _bare(value: str) -> str:
    """An answer without the marks around it: back-ticks, bold, a box of LaTeX."""
    bare = value.strip().strip("*`").strip()
    boxed = re.fullmatch(r"\$*\\boxed\{(.*)\}\$*\.?", bare, re.DOTALL)
    return boxed[1].strip() if boxed else bare


def _of_calls(called: tuple[Call, ...], words: Words, conversation: Conversation, finish: str) -> Action:
    intent = _intent(words.text)
    # The first call decides what the step is; calls of the same kind and language behind it belong to it.
    kind, given = calls.kind(called[0]), calls.arguments(called[0])
    if finish in _CUT and not all(calls.is_whole(call) for call in called):
        return NoAction(CUT_OFF, intent)
    if not kind:
        return NoAction(f"there is no function {called[0].name!r}.", intent)
    if given is None:
        return NoAction(f"the arguments of {called[0].name} are no JSON object.", intent)
    if kind == calls.GIVE_UP:
        return GiveUp(str(given.get("reason") or "the model gave no reason")[:2000], intent)
    if kind == calls.ANSWER:
        return _called_answer(given, conversation, intent)
    return _called_code(called, intent)


def _called_answer(given: dict[str, object], conversation: Conversation, intent: str) -> Action:
    value = next((given[name] for name in ("answer", "value", "result") if name in given), None)
    if value is None or isinstance(value, dict):
        return NoAction("the call of final_answer has no `answer`. Give it as text.", intent)
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    number = re.search(r"\d{1,6}", str(given.get("execution") or ""))
    execution_id = _execution_id(int(number[0]), conversation) if number else ""
    return FinalAnswer(encodable(text.strip()[:_LARGEST_ANSWER]), execution_id, intent=intent)


def _called_code(called: tuple[Call, ...], intent: str) -> Action:
    cells: list[tuple[str, str]] = []
    for call in called:
        given = calls.arguments(call)
        cell = calls.code(call, given) if given is not None and calls.kind(call) == calls.RUN else None
        if cell is None or (cells and (cell[1] in SHELL) != (cells[0][1] in SHELL)):
            break
        cells.append(cell)
    if not cells:
        return NoAction(f"the call of {called[0].name} has no `code`.", intent)
    left = [call.name for call in called[len(cells) :]]
    remarks = [f"your {len(cells)} calls were run in order as one cell"] if len(cells) > 1 else []
    said = Said(remark=". ".join([*remarks, *([_left_out(left)] if left else [])]))
    code, language = "\n\n".join(cell[0] for cell in cells), cells[0][1]
    if language in SHELL:
        return RunCommand(code.strip(), intent, said)
    return RunCode(code, language_of(language), intent, said)


def _why_empty(words: Words, finish: str) -> str:
    if finish in _CUT:
        return CUT_OFF
    return _all_thought() if words.thought else "your reply was empty."


def _all_thought() -> str:
    return "all of your reply was thinking, and nothing in it is run."


def _why_nothing(words: Words) -> str:
    shown = sorted({block.language for block in words.blocks if block.language})
    if shown:
        return f"no python or bash block was found in your reply, only {', '.join(shown)}, which is not run."
    return "no code block and no final answer was found in your reply."


def _reminder(*, needs_evidence: bool) -> str:
    answer = "FINAL ANSWER (execution N): value" if needs_evidence else "FINAL ANSWER: text"
    return f"To run code, write a ```python or a ```bash block; to answer, write {answer}"


def _functions() -> str:
    return "Call run_code(code, language), final_answer or give_up(reason)."


def _execution_id(number: int, conversation: Conversation) -> str:
    step = conversation.steps[number - 1] if 1 <= number <= len(conversation.steps) else None
    return step.evidence.execution_id if step and step.evidence else f"execution {number}"


def _intent(text: str) -> str:
    return encodable(" ".join(text.split())[:_INTENT])
