"""Jupyter kernels as contexts: ipykernel, and what else the machine has (bash_kernel, IRkernel)."""

import asyncio
import importlib.util
import json
from dataclasses import dataclass

import pytest
import pytest_asyncio
from sandfleet import Outcome
from sandfleet.errors import InvalidArgument, PreconditionFailed

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Kernel:
    """The same few things said to each kernel."""

    name: str
    keep: str
    say_kept: str
    kept: str
    say: str
    complain: str
    fail: str
    error: str
    spin: str
    ask: str
    leave: str
    begun: tuple[str, str]
    known: str
    # A program that prints "out" and "err".
    program: str


KERNELS = [
    Kernel(
        name="jupyter-python3",
        keep="kept = 'yes'",
        say_kept="kept",
        kept="'yes'",
        say="print('on', flush=True)",
        complain="import sys; print('off', file=sys.stderr)",
        fail="1 / 0",
        error="ZeroDivisionError",
        spin="while True: pass",
        ask="input('name? ')",
        leave="import os; os._exit(3)",
        begun=("'text'.uppe", "upper"),
        known="len",
        program="import os; code = os.system('echo out; echo err >&2')",
    ),
    Kernel(
        name="jupyter-bash",
        keep="kept=yes",
        say_kept="echo $kept",
        kept="yes",
        say="echo on",
        complain="echo off >&2",
        fail="ls /is/not/there",
        error="Error",
        spin="while :; do :; done",
        ask="",
        leave="",
        begun=("ech", "echo"),
        known="",
        # It reads both as one.
        program="",
    ),
    Kernel(
        name="jupyter-ir",
        keep="kept <- 'yes'",
        say_kept="kept",
        kept='[1] "yes"',
        say="cat('on\\n')",
        complain="message('off')",
        fail="stop('no')",
        error="ERROR",
        spin="while (TRUE) 1",
        ask="readline('name? ')",
        leave="tools::pskill(Sys.getpid(), 9)",
        begun=("mea", "mean"),
        known="mean",
        program="system('echo out; echo err >&2')",
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def has(sandbox):
    return (await sandbox.environment()).languages


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=KERNELS, ids=lambda kernel: kernel.name)
async def made(sandbox, has, request):
    """The kernel, and a context of it for the whole file: starting one takes a second or more."""
    kernel = request.param
    if kernel.name not in has:
        pytest.skip(f"the sandbox has no kernel {kernel.name}")
    return kernel, await sandbox.create_context(kernel.name, language=kernel.name)


@pytest.fixture
def kernel(made):
    return made[0]


@pytest.fixture
def run(sandbox, made):
    async def run(code, **options):
        return await sandbox.run_code(code, context=made[1], **{"timeout": 120, **options})

    return run


def said(execution):
    # IRkernel displays values, and has no results.
    shown = "".join(each.text or "" for each in execution.results)
    return (execution.text or shown or execution.logs.stdout).strip()


async def test_the_sandbox_names_its_kernels(sandbox, has):
    if importlib.util.find_spec("jupyter_client") is None:
        pytest.skip("no jupyter_client here")
    if "jupyter-python3" in has:
        assert "Python 3" in has["jupyter-python3"]
    with pytest.raises(InvalidArgument, match=r"has no Jupyter kernel nope; its kernels: |has no jupyter_client"):
        await sandbox.create_context(language="jupyter-nope")


async def test_variables_last_and_streams_come_apart(run, kernel):
    await run(kernel.keep)
    assert said(await run(kernel.say_kept)) == kernel.kept
    execution = await run(f"{kernel.say}\n{kernel.complain}")
    assert execution.outcome is Outcome.OK
    # bash_kernel has one terminal for both.
    streams = ("on\noff\n", "") if kernel.name == "jupyter-bash" else ("on\n", "off\n")
    # IRkernel ends a message with a line of its own.
    assert (execution.logs.stdout, execution.logs.stderr.replace("\n\n", "\n")) == streams


async def test_a_cell_that_fails_is_an_error_of_the_code_and_the_variables_are_kept(run, kernel):
    await run(kernel.keep)
    execution = await run(kernel.fail)
    assert (execution.outcome, execution.blame, execution.lost) == ("error", "code", ())
    assert execution.error.name == kernel.error
    assert "\x1b" not in execution.error.traceback
    assert said(await run(kernel.say_kept)) == kernel.kept


async def test_a_deadline_and_an_interrupt_keep_the_variables(sandbox, made, run, kernel):
    await run(kernel.keep)
    # The code has a second to react: on a machine that is busy it may not come to that each time.
    for _ in range(5):
        execution = await run(kernel.spin, timeout=1)
        assert (execution.outcome, execution.blame) == ("timeout", "limit")
        if not execution.lost:
            break
        await run(kernel.keep)
    seen = asyncio.Event()
    cell = asyncio.create_task(run(f"{kernel.say}\n{kernel.spin}", on_stdout=lambda _: seen.set()))
    if kernel.name != "jupyter-bash":
        await asyncio.wait_for(seen.wait(), 60)
    else:
        await asyncio.sleep(1)
    assert await sandbox.interrupt(made[1], grace=60)
    execution = await cell
    assert (execution.outcome, execution.error.name, execution.lost) == ("interrupted", "Interrupted", ())
    assert said(await run(kernel.say_kept)) == kernel.kept


async def test_a_prompt_is_refused_and_not_waited_for(run, kernel):
    if not kernel.ask:
        pytest.skip("it has no prompts")
    execution = await run(kernel.ask, timeout=60)
    assert (execution.outcome, execution.blame, execution.lost) == ("error", "code", ())
    assert execution.error.name in ("StdinNotAvailable", "StdinNotImplementedError")


async def test_code_is_completed_and_described(sandbox, made, kernel):
    begun, whole = kernel.begun
    found = await sandbox.complete(begun, context=made[1], timeout=10)
    assert any(each.endswith(whole) for each in found.matches)
    if kernel.known:
        described = await sandbox.inspect(kernel.known, context=made[1], timeout=10)
        assert described
        # Help of R is printed over itself where it is bold.
        assert "\x08" not in described.text
    found = await sandbox.inspect("no_such_name_at_all", context=made[1], timeout=10)
    # IRkernel has an answer for every name.
    assert not found or "No documentation" in found.text


async def test_a_kernel_of_ipython_completes_without_what_takes_longer_than_a_caller_waits(run, kernel):
    if kernel.name != "jupyter-python3":
        pytest.skip("it has no Jedi")
    assert (await run("get_ipython().Completer.use_jedi")).text == "False"


async def test_output_of_programs_that_a_cell_starts_is_the_cells(run, kernel):
    if not kernel.program:
        pytest.skip("its shell does not tell the streams apart")
    execution = await run(kernel.program)
    assert (execution.logs.stdout, execution.logs.stderr) == ("out\n", "err\n")
    assert (await run(kernel.say)).logs.stdout == "on\n"


async def test_a_kernel_that_ends_is_replaced_and_it_is_said(run, kernel):
    if not kernel.leave:
        pytest.skip("its shell is started again by itself")
    execution = await run(kernel.leave)
    assert (execution.outcome, execution.blame) == ("killed", "code")
    assert execution.lost == ("variables", "processes")
    assert (await run(kernel.say)).logs.stdout == "on\n"


async def test_a_context_of_a_kernel_is_neither_saved_nor_read_as_a_table(sandbox, made, run):
    await run("")
    with pytest.raises(PreconditionFailed) as raised:
        await sandbox.tables.get("kept", context=made[1])
    assert raised.value.reason in ("LanguageCannot", "LibraryMissing")


# What only IRkernel can say.


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def r(sandbox, has):
    if "jupyter-ir" not in has:
        pytest.skip("the sandbox has no IRkernel")

    async def run(code, **options):
        return await sandbox.run_code(code, language="jupyter-ir", **{"timeout": 120, **options})

    return run


async def test_plots_and_frames_of_r_are_results(r):
    execution = await r("plot(1:10); head(mtcars, 2)")
    plot, frame = sorted(execution.results, key=lambda each: each.png is None)
    assert plot.png.startswith(b"\x89PNG")
    assert "A data.frame: 2 \u00d7 11" in frame.html
    assert "Mazda RX4" in frame.text


async def test_errors_of_r_say_the_line_and_warnings_are_standard_error(r):
    execution = await r("f <- function(a) {\n  stop('bad ', a)\n}\nf(1)")
    assert "# at line 2 of file <text>" in execution.error.traceback
    execution = await r("x <- 1\nif (")
    assert "<text>:3:0: unexpected end of input" in execution.error.value
    execution = await r("warning('careful'); write('to stderr', stderr()); cat('é∑😀')")
    assert (execution.outcome, execution.logs.stdout) == ("ok", "é∑😀")
    assert "careful" in execution.logs.stderr
    assert "to stderr\n" in execution.logs.stderr


async def test_what_r_prints_between_two_cells_is_of_neither(r, sandbox):
    begin = "system('(while [ ! -e go ]; do sleep 0.1; done; echo late; touch gone) >&2 &')"
    assert (await r(begin)).logs.stderr == ""
    await sandbox.files.write("go", "")
    async with asyncio.timeout(60):
        while not await sandbox.files.exists("gone"):
            await asyncio.sleep(0.1)
    assert (await r("1")).logs.stderr == ""


async def test_a_flood_of_a_program_of_r_is_cut_with_the_exact_count(r):
    execution = await r("system('yes | head -c 3000000')", output_limit=64 << 10)
    kept = len(execution.logs.stdout)
    assert kept <= 64 << 10
    assert kept + sum(gap.dropped_bytes for gap in execution.logs.gaps) == 3_000_000


async def test_too_much_memory_in_r_is_an_outcome(r):
    execution = await r("h <- list(); i <- 0; repeat { i <- i + 1; h[[i]] <- runif(1e6) }")
    assert (execution.outcome, execution.blame) == ("memory", "limit")
    assert (await r("exists('h')")).results[0].text == "[1] FALSE"


# What only ipykernel can say.

RICH = """
from IPython.display import HTML, clear_output, display
shown = display(HTML('<b>1</b>'), display_id='one')
shown.update(HTML('<i>2</i>'))
display({'text/plain': 'x', 'application/json': {'a': [1]}}, raw=True)
"""
WIDGETS = """
from comm import create_comm
for _ in range(3): create_comm(target_name='none').send({})
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def python(sandbox, has):
    if "jupyter-python3" not in has:
        pytest.skip("the sandbox has no ipykernel")

    async def run(code, **options):
        return await sandbox.run_code(code, language="jupyter-python3", **{"timeout": 120, **options})

    return run


async def test_rich_results_updates_and_clears_are_those_of_the_other_contexts(python):
    execution = await python(RICH)
    assert [each.display_id for each in execution.results] == ["one", ""]
    assert execution.results[0].html == "<i>2</i>"
    assert json.loads(execution.results[1].json) == {"a": [1]}
    execution = await python("print('gone'); clear_output(); print('there'); 5")
    assert (execution.logs.stdout, execution.text) == ("there\n", "5")


# As IRkernel does, and with a kernel that does not hear interrupts.
ASKS_ALL_THE_SAME = "get_ipython().kernel._allow_stdin = True\nname = input('name? ')"
DEAF = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{ASKS_ALL_THE_SAME}"


@pytest.mark.parametrize("code", [ASKS_ALL_THE_SAME, DEAF])
async def test_a_kernel_that_asks_although_it_must_not_is_refused_as_well(python, code):
    execution = await python(code)
    assert (execution.outcome, execution.error.name, execution.lost) == ("error", "StdinNotAvailable", ())
    assert execution.error.value == "cannot read input at 'name? ': the caller of this cell gives none"
    execution = await python("import signal; signal.signal(signal.SIGINT, signal.default_int_handler); kept = 1")
    assert execution.ok
    assert (await python("input('again? ')", on_input=str)).text == "'again? '"


async def test_messages_of_widgets_are_dropped_and_counted(python):
    assert "messages of widgets dropped" in (await python(WIDGETS)).logs.stderr


async def test_output_of_the_kernels_programs_and_a_flood_come_through(python):
    assert (await python("import os; os.system('echo raw')")).logs.stdout == "raw\n"
    execution = await python("for i in range(1 << 16): print('x' * 63)", output_limit=64 << 10)
    kept = len(execution.logs.stdout)
    assert kept <= 64 << 10
    assert kept + sum(gap.dropped_bytes for gap in execution.logs.gaps) == 4 << 20


async def test_a_kernel_that_cannot_start_says_what_it_printed(sandbox, has):
    if not any(each.startswith("jupyter-") for each in has):
        pytest.skip("the sandbox has no jupyter_client")
    spec = {"argv": ["python", "-c", "raise SystemExit('no such thing')"]}
    await sandbox.files.write(".local/share/jupyter/kernels/bad/kernel.json", json.dumps(spec))
    with pytest.raises(InvalidArgument, match=r"it ended with exit code 1: no such thing"):
        await sandbox.create_context(language="jupyter-bad")
    execution = await sandbox.run_code("1", language="jupyter-python3", timeout=60)
    assert execution.ok


async def test_the_kernels_sockets_are_files_that_only_the_session_has(python):
    await python("1")
    code = "import glob, os; print([oct(os.stat(each).st_mode & 0o777) for each in glob.glob('/tmp/.jupyter-*')])"
    assert set(json.loads((await python(code)).logs.stdout.replace("'", '"'))) == {"0o700"}
