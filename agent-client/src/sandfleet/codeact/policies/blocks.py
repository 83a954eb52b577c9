"""The blocks of code in a model's reply, and which of its words are only thinking. Pure.

A block is a Markdown fence (three or more back-ticks or tildes, also on one line) or one of the tags that models were
trained on: `<execute>` (the CodeAct paper), `<execute_ipython>` and `<execute_bash>` (OpenHands), `<code>`
(smolagents), `<|python_tag|>` (Llama). What stands between `<think>` and `</think>` is no block, also where one of the
two is missing.
"""

import re
from dataclasses import dataclass, replace

PYTHON = frozenset(
    {"python", "py", "py3", "python3", "ipython", "ipython3", "tool_code", "pycon", "python-repl", "jupyter"}
)
SHELL = frozenset({"bash", "sh", "shell", "console", "zsh", "terminal", "shell-session", "sh-session", "shellscript"})
JAVASCRIPT = frozenset({"javascript", "js", "node", "nodejs", "mjs", "cjs"})
TYPESCRIPT = frozenset({"typescript", "ts", "mts", "cts"})
SQL = frozenset({"sql", "duckdb"})
# R is a Jupyter kernel, of this name where Debian and CRAN install it.
R = frozenset({"r", "rscript"})
_LANGUAGES = {
    **dict.fromkeys(PYTHON, "python"),
    **dict.fromkeys(JAVASCRIPT, "javascript"),
    **dict.fromkeys(TYPESCRIPT, "typescript"),
    **dict.fromkeys(SQL, "sql"),
    **dict.fromkeys(R, "jupyter-ir"),
}
_OUTPUT = {"output", "stdout", "stderr", "log", "result", "observation", "traceback", "tool_output", "tool_outputs"}
_TEXT = {"text", "txt", "plaintext", "plain"}
_FORMATS = {"json", "jsonl", "json5", "yaml", "yml", "toml", "ini", "cfg", "env", "csv", "tsv", "xml", "diff", "patch"}
_PAGES = {"html", "css", "svg", "markdown", "md", "rst", "latex", "tex", "mermaid", "dockerfile", "makefile"}
# What such a block holds is shown, not run.
DATA = frozenset(_OUTPUT | _TEXT | _FORMATS | _PAGES)
_KNOWN = PYTHON | SHELL


def language_of(name: str) -> str:
    """The language of contexts that a block names; "python" for none, and a name that is unknown as it is."""
    return _LANGUAGES.get(name, name) or "python"


_THINK = r"think|thinking|thought|thoughts|reasoning|seed:think"
# Marks of the end of a turn that an endpoint has left in the text. What stands behind them is another turn, made up.
_STOP = (
    r"<\|(?:im_end|eot_id|endoftext|end_of_turn|eom_id|return)\|>|<end_of_turn>|<\uff5cend▁of▁sentence\uff5c>|</s>\s*\Z"
)
_OPENER = re.compile(
    rf"""(?P<think>(?<![`'"])(?:<(?:{_THINK})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|channel\|>analysis<\|message\|>))
       | (?P<stop>{_STOP})
       | (?P<thought>(?<![`'"])(?:</(?:{_THINK})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>))
       | (?P<tag>(?<![`'"])<(?P<name>execute(?:_ipython|_python|_bash)?|code(?=[ >])(?<=^<code)|\|python_tag\|)[^>\n]*>)
       | (?P<line>^[ \t]*```(?P<inline>[^`\n]+)```[ \t]*$)
       | (?P<fence>^(?P<indent>[ \t]*(?:(?:>|[-*+]|\d{{1,3}}[.)])[ \t]+)*)(?P<marks>`{{3,}}|~{{3,}})(?P<info>[^`\n]*)(?:\n|\Z))
       | (?P<middle>```[ \t]*(?P<word>{"|".join(sorted(_KNOWN))})[ \t]*\n)
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_THOUGHT_ENDS = re.compile(
    rf"</(?:{_THINK})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|end\|>|(?=<\|start\|>)", re.IGNORECASE
)
_THOUGHT_LINE = re.compile(rf"^[ \t]*</(?:{_THINK})>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_CLOSING_TAGS = {
    "|python_tag|": r"<\|(?:eom_id|eot_id|eom|eot)\|>",
    "execute": r"</execute>",
    "code": r"</code>",
    "execute_ipython": r"</execute_ipython>",
    "execute_python": r"</execute_python>",
    "execute_bash": r"</execute_bash>",
}
_TAG_LANGUAGE = re.compile(r"""(?:lang|language|class)\s*=\s*["']?(?:language-)?([\w+#-]+)""", re.IGNORECASE)
# Tokens of Python that decide whether a place is inside a string; single quotes end with their line.
_PYTHON_STRINGS = re.compile(
    r"""\#[^\n]* | (?P<long>\"\"\"|''') | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""", re.VERBOSE
)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
# Ends of a block that are tried before the first one is taken.
_TRIED = 32


@dataclass(frozen=True, slots=True)
class Block:
    """A block in a text: from `start` to `end` with its marks. `closed` is false when the text ends within it."""

    language: str
    code: str
    start: int
    end: int
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Words:
    """A reply without its thinking.

    text       what is left, with LF line ends; the positions of `blocks` are places in it.
    thought    whether there was thinking. thinking: whether the reply ended within it.
    """

    text: str
    blocks: tuple[Block, ...] = ()
    thought: bool = False
    thinking: bool = False


def read(reply: str) -> Words:
    """Find the blocks of a reply, outside of its thinking."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    # What was said outside of thinking: text and where it begins in the result.
    said, position, thought = "", 0, False
    blocks: list[Block] = []
    while match := _OPENER.search(text, position):
        if match["stop"]:
            return Words(said + text[position : match.start()], tuple(blocks), thought)
        if match["thought"]:
            # Templates of reasoning models open the thinking themselves: what stands before a lone end tag was thought.
            said, blocks, position, thought = "", [], match.end(), True
            continue
        said += text[position : match.start()]
        if match["think"]:
            thought = True
            ends = _THOUGHT_ENDS.search(text, match.end())
            if ends is None:
                return Words(said, tuple(blocks), thought=True, thinking=True)
            position = ends.end()
            continue
        block = _block(text, match)
        lone = _lone_end_of_thought(block)
        if lone:
            said, blocks, position, thought = "", [], block.start + text[block.start :].index(lone) + len(lone), True
            continue
        blocks.append(replace(block, start=len(said), end=len(said) + block.end - block.start))
        said += text[block.start : block.end]
        position = block.end
    return Words(said + text[position:], tuple(blocks), thought)


def without_thinking(reply: str) -> str:
    """The words of a reply outside of its thinking, verbatim; the reply itself where it has none."""
    words = read(reply)
    return words.text.strip("\n") if words.thought else reply


def _lone_end_of_thought(block: Block) -> str:
    """The line that ends the thinking within a block that was opened in it and never closed; "" when there is none."""
    ends = _THOUGHT_LINE.search(block.code)
    if ends is None or re.search(rf"<(?:{_THINK})>", block.code[: ends.start()], re.IGNORECASE):
        return ""
    return ends[0].strip()


def _block(text: str, match: re.Match[str]) -> Block:
    if match["line"]:
        return _on_one_line(match)
    if match["tag"]:
        return _tagged(text, match)
    marks, info = match["marks"] or "```", match["word"] or match["info"]
    language = _language(info)
    closing = re.compile(rf"^[ \t>]*{re.escape(marks[0])}{{{len(marks)},}}[ \t]*(?=$|{_STOP})", re.MULTILINE)
    # The end of a fence may also stand behind the last line of the code.
    ends = _end(text, match.end(), closing, language) or re.compile(rf"{marks}[ \t]*$", re.MULTILINE).search(
        text, match.end()
    )
    code = text[match.end() : ends.start() if ends else len(text)]
    code = _without_prompts(_without_indent(code, match["indent"] or ""), language)
    code = code if code.endswith("\n") or not code else f"{code}\n"
    return Block(language, code, match.start(), ends.end() if ends else len(text), bool(ends))


def _on_one_line(match: re.Match[str]) -> Block:
    first, _, rest = match["inline"].strip().partition(" ")
    known = first.lower() in _KNOWN and bool(rest.strip())
    code = rest.strip() if known else match["inline"].strip()
    return Block(first.lower() if known else "", f"{code}\n", match.start(), match.end())


def _tagged(text: str, match: re.Match[str]) -> Block:
    name = match["name"].lower()
    named = _TAG_LANGUAGE.search(match["tag"])
    language = "bash" if name.endswith("_bash") else named[1].lower() if named else "python"
    ends = _end(text, match.end(), re.compile(_CLOSING_TAGS[name], re.IGNORECASE), language)
    code = text[match.end() : ends.start() if ends else len(text)]
    inner = _fence_within(code)
    if inner is not None:
        language, code = inner.language or language, inner.code
    return Block(
        language, code.strip("\n").strip(" ") + "\n", match.start(), ends.end() if ends else len(text), bool(ends)
    )


def without_fence(code: str) -> str:
    """Code without a fence around all of it."""
    inner = _fence_within(code)
    return code if inner is None else inner.code


def _fence_within(code: str) -> Block | None:
    """The fence that is all there is between two tags."""
    match = _OPENER.match(code.strip())
    if match is None or not (match["fence"] or match["line"]):
        return None
    return _block(code.strip(), match)


def _end(text: str, start: int, closing: re.Pattern[str], language: str) -> re.Match[str] | None:
    """Where a block ends: at the first mark that is not inside a string or a here-document of its own code."""
    first: re.Match[str] | None = None
    for count, ends in enumerate(closing.finditer(text, start)):
        first = first or ends
        if count == _TRIED:
            break
        if not _is_inside(text[start : ends.start()], language):
            return ends
    return first


def _is_inside(code: str, language: str) -> bool:
    return _in_heredoc(code) if language in SHELL else _in_long_string(code)


def _in_long_string(code: str) -> bool:
    position = 0
    while match := _PYTHON_STRINGS.search(code, position):
        position = match.end()
        if match["long"]:
            closing = code.find(match["long"], position)
            while closing > 0 and code[closing - 1] == "\\" and code[closing - 2] != "\\":
                closing = code.find(match["long"], closing + 1)
            if closing < 0:
                return True
            position = closing + 3
    return False


def _in_heredoc(code: str) -> bool:
    ends = ""
    for line in code.split("\n"):
        if ends:
            ends = "" if line.strip() == ends else ends
        elif match := _HEREDOC.search(line):
            ends = match[2]
    return bool(ends)


def _language(info: str | None) -> str:
    """The language that an info string names: "python", "{python}", "Python3 title=x", "py:main.py"."""
    match = re.match(r"[\s{.]*([\w+#-]+)", info or "")
    return match[1].lower() if match else ""


def _without_indent(code: str, indent: str) -> str:
    """Take off each line what stood before the fence, in a list or a quotation."""
    if not indent:
        return code
    if indent.strip().startswith(">"):
        return re.sub(r"^[ \t]*(?:>[ \t]?)+", "", code, flags=re.MULTILINE)
    return re.sub(rf"^[ \t]{{1,{len(indent)}}}", "", code, flags=re.MULTILINE)


def _without_prompts(code: str, language: str) -> str:
    """What was typed in a transcript of a terminal or an interpreter; the code itself where it is none."""
    prompts = ("$ ",) if language in SHELL else (">>> ", "... ") if language in PYTHON else ()
    lines = code.split("\n")
    if not prompts or not lines[0].startswith(prompts[0]):
        return code
    typed = [line[len(prompts[0]) :] for line in lines if line.startswith(prompts) or line in {">>>", "..."}]
    return "\n".join(typed) + "\n"
