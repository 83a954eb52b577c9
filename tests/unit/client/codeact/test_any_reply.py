"""Whatever a model writes: reading it raises nothing, thinking is never run, and half a block neither."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet.codeact import Conversation, FinalAnswer, NoAction, RunCode, RunCommand
from sandfleet.codeact.policies import blocks, protocol
from support.examples import examples

PIECES = [
    "```", "```python\n", "```py\n", "```bash\n", "```json\n", "~~~python\n", "~~~", "````\n", "\n```\n", "\n~~~\n",
    "<think>", "</think>", "<think>\n", "\n</think>\n", "[THINK]", "[/THINK]", "◁think▷", "◁/think▷", "`<think>`",
    "<execute>", "</execute>", "<execute_bash>\n", "</execute_bash>", "<code>\n", "</code>", "<|python_tag|>", "<|eot_id|>",
    "<tool_call>", "</tool_call>", '{"name": "run_code", "arguments": {"code": "print(1)"}}', "[TOOL_CALLS]", "<function=run_code>",
    "print(1)\n", "x = '''\n", "'''\n", '"""', "cat <<EOF\n", "EOF\n", "# comment", "\\", "'", '"', "\r\n", "\n", "\n\n", " ", "\ud800",
    "FINAL ANSWER (execution 1): 42", "FINAL ANSWER: 42", "GIVE UP: no", "[execution 2] ok\n", "Observation: 1\n", "I count.", "</s>",
]  # fmt: skip
REPLIES = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
FINISH = st.sampled_from(["stop", "length", ""])
TASK = Conversation("t")


@given(st.one_of(REPLIES, st.text(max_size=200)), FINISH)
def test_no_reply_raises_and_its_words_are_kept(reply: str, finish: str) -> None:
    action = protocol.parse(reply, TASK, finish=finish)
    assert action.said is not None
    assert action.said.text == reply


@given(REPLIES)
def test_a_block_stands_where_it_says(reply: str) -> None:
    words = blocks.read(reply)
    places = [(block.start, block.end) for block in words.blocks]
    assert places == sorted(places)
    assert all(0 <= start < end <= len(words.text) for start, end in places)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))


# Thinking that does not end itself.
INNER = st.lists(st.sampled_from([piece for piece in PIECES if "/think" not in piece.lower()]), max_size=12).map(
    "".join
)
TAGS = st.sampled_from([("<think>", "</think>"), ("<thinking>\n", "\n</thinking>"), ("[THINK]", "[/THINK]")])


def code_of(action: object) -> str:
    match action:
        case RunCode(code=code):
            return code
        case RunCommand(command=str() as command):
            return command
    return ""


@settings(max_examples=examples(300))
@given(INNER, TAGS, REPLIES, st.sampled_from(["", "I count.\n"]))
def test_what_stands_in_thinking_is_never_run(inner: str, tags: tuple[str, str], rest: str, before: str) -> None:
    secret = "```python\nTHOUGHT\n```\n<execute>THOUGHT</execute>\n"
    reply = f"{before}{tags[0]}{inner}\n{secret}{inner}{tags[1]}\n{rest}"
    assert "THOUGHT" not in code_of(protocol.parse(reply, TASK))


@given(INNER)
def test_thinking_that_never_ends_is_never_run(inner: str) -> None:
    action = protocol.parse(f"<think>{inner}\n```python\nTHOUGHT\n```", TASK)
    assert isinstance(action, NoAction)


@given(REPLIES)
def test_a_block_that_was_cut_off_is_never_run(reply: str) -> None:
    words = blocks.read(reply)
    action = protocol.parse(reply, TASK, finish="length")
    if words.blocks and not words.blocks[-1].closed and not isinstance(action, NoAction):
        # What runs is a call in the text, which is whole when it is JSON.
        assert "run_code" in reply


@given(REPLIES)
def test_what_is_shown_of_an_action_can_be_printed(reply: str) -> None:
    action = protocol.parse(reply, TASK)
    action.intent.encode()
    if isinstance(action, FinalAnswer):
        str(action.value).encode()
