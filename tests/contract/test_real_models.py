"""The loop with a model behind an endpoint, on real sandboxes, and the programs of docs/howto/real-models.md."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandfleet import AsyncSandbox
from sandfleet.codeact import CodeActAgent, End, RunCode, Verdict
from sandfleet.codeact.policies.openai import OpenAIPolicy
from support.client.chat_endpoint import Endpoint

HOWTO = (Path(__file__).parents[2] / "docs/howto/real-models.md").read_text()
# The programs; a block of a model's own, in an example of output, begins otherwise.
BLOCKS = re.findall(r"^```python\n((?:import|from) .*?)^```$", HOWTO, re.DOTALL | re.MULTILINE)
PRIMES = "print(sum(all(n % d for d in range(2, n)) for n in range(2, 1000)))"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with Endpoint() as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        yield server


@pytest.fixture
async def sandbox() -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create() as made:
        yield made


def program(*words: str) -> str:
    (found,) = (block for block in BLOCKS if all(word in block for word in words))
    return found


def run(source: str) -> dict[str, Any]:
    module: dict[str, Any] = {}
    exec(compile(source, "real-models.md", "exec"), module)
    return module


def test_the_howtos_first_program_shows_tokens_and_steps_as_it_says(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.say(f"I count them.\n```python\n{PRIMES}\n```")
    endpoint.say("FINAL ANSWER (execution 1): 168")
    run(program("run.tokens"))
    shown = re.findall(r"^````text\n(.*?)\n````$", HOWTO, re.DOTALL | re.MULTILINE)
    assert without_figures(capsys.readouterr().out) == without_figures(shown[0])


def without_figures(text: str) -> str:
    return re.sub(r"(?m)^\(.* s CPU, .*\)$", "(usage)", text).strip()


def test_the_howtos_judge_rejects_until_the_file_is_there(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.say("FINAL ANSWER: There is nothing.")
    endpoint.say("```python\nopen('report.md', 'w').write('nothing')\n```")
    endpoint.say("FINAL ANSWER: The workspace\n\nis empty.")
    run(program("judge=judge"))
    assert capsys.readouterr().out == "answered The workspace\n\nis empty.\n"
    assert "report.md is not there. Write it first." in endpoint.requests[1][2]["messages"][-1]["content"]


def test_the_howtos_program_names_the_endpoints_failure(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    endpoint.refuse(400, "maximum context length is 8192 tokens", "context_length_exceeded")
    run(program("POLICY_FAILED"))
    out = capsys.readouterr().out
    assert out.startswith("ContextTooLong the model's endpoint answered 400: maximum context length")
    assert out.endswith("try again with a smaller history\n")


def test_the_howtos_own_policy_reads_and_writes_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    run(program("async def ask"))
    assert capsys.readouterr().out == "gave_up the policy gave up: there is no model yet\n"


@pytest.mark.parametrize("words", ["tools=True", "options=", "images=2"])
def test_the_howtos_policies_are_made_as_they_stand(endpoint: Endpoint, words: str) -> None:
    assert isinstance(run(program(words))["policy"], OpenAIPolicy)


def test_every_program_of_the_howto_is_tried() -> None:
    assert len(BLOCKS) == 7


async def test_a_model_that_calls_functions_solves_a_task(endpoint: Endpoint, sandbox: AsyncSandbox) -> None:
    endpoint.say("I count.", calls=(("run_code", {"code": PRIMES, "language": "python"}),))
    endpoint.say(None, calls=(("run_code", {"code": "echo $((6 * 7))", "language": "bash"}),))
    endpoint.say(None, calls=(("final_answer", {"answer": "168", "execution": 1}),))
    run = await CodeActAgent(OpenAIPolicy("tiny", tools=True), sandbox).run("How many primes?")
    assert (run.end, run.answer.value if run.answer else None) == (End.ANSWERED, "168")
    assert "stdout: 42" in run.steps[1].observation
    roles = [message["role"] for message in endpoint.requests[-1][2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]


async def test_a_plot_is_seen_by_the_model(endpoint: Endpoint, sandbox: AsyncSandbox) -> None:
    endpoint.say(f"```python\n{PLOT}\n```")
    endpoint.say("GIVE UP: seen")
    run = await CodeActAgent(OpenAIPolicy("tiny", images=1), sandbox).run("Plot.")
    evidence = run.steps[0].evidence
    assert evidence is not None
    assert [image.mime for image in evidence.images] == ["image/png"]
    parts = endpoint.requests[1][2]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")


async def test_lone_surrogates_from_a_model_and_from_a_cell_end_no_run(
    endpoint: Endpoint, sandbox: AsyncSandbox
) -> None:
    endpoint.say("```python\nprint('\ud83d')\n```")
    cell = "print('\\ud83d'); import os; open(b'caf\\xe9.txt', 'w').close(); {'\\udcff': 1}"
    endpoint.say(f"```python\n{cell}\n```")
    endpoint.say("FINAL ANSWER (execution 2): \ud83d")
    run = await CodeActAgent(OpenAIPolicy("tiny"), sandbox).run("Count \ud83d.")
    # Both the answer and the output have it as its escape.
    assert (run.end, run.answer.value if run.answer else None) == (End.ANSWERED, "\\ud83d")
    assert run.steps[0].verdict is Verdict.FAILED
    assert "REFUSED, nothing was run: cannot run the code: it has a lone surrogate (U+D83D)" in run.steps[0].observation
    assert isinstance(run.steps[1].action, RunCode)
    assert run.steps[1].evidence is not None
    "\n".join(step.observation for step in run.steps).encode()
    assert len(endpoint.requests) == 3
