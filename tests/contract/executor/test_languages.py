"""What holds of a context whatever its language: each sentence is looked at in each of them."""

import asyncio
import re
import secrets

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.languages import LANGUAGES
from sandfleet import Outcome
from sandfleet.errors import InvalidArgument

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """Without copies, which only one of the languages has."""
    async with starting(rollback={"enabled": False}) as made:
        yield made


LOST = ("variables", "processes")
MIB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def spoken(sandbox):
    """The languages that the file's sandbox has."""
    return set((await sandbox.environment()).languages)


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def language(request, spoken):
    if request.param.name not in spoken:
        pytest.skip(f"the sandbox has no program for {request.param.name}")
    return request.param


@pytest_asyncio.fixture(loop_scope="session")
async def made(sandbox, language):
    """A new context of the language."""
    context = await sandbox.create_context(f"c-{secrets.token_hex(4)}", language=language.name)
    yield context
    await sandbox.delete_context(context)


@pytest.fixture
def run(sandbox, made):
    """Runs a cell in it."""

    async def run(code, **options):
        return await sandbox.run_code(code, context=made, **{"timeout": 60, **options})

    return run


async def state_of(sandbox, context):
    return next(each for each in await sandbox.list_contexts() if each.context_id == context.context_id)


async def busy(sandbox, context):
    return (await state_of(sandbox, context)).state == "busy"


async def test_the_sandbox_says_which_languages_it_has(sandbox, language):
    assert (await sandbox.environment()).languages[language.name][0].isdecimal()


async def test_a_context_says_its_language(sandbox, made, language):
    assert (made.language, (await state_of(sandbox, made)).language) == (language.name, language.name)


async def test_each_language_has_a_default_context_of_its_own(sandbox, spoken, language):
    mine = language.name.upper()
    await sandbox.run_code(language.set_x.format(mine), language=language.name)
    for other in LANGUAGES:
        if other.name not in spoken:
            continue
        said = (await sandbox.run_code(other.say_x, language=other.name)).logs.stdout
        assert (said == f"{mine}\n") is (other is language)


async def test_variables_the_folder_and_the_environment_last(run, language):
    await run(language.set_x.format("one"))
    await run(language.change_folder.format("a/b"))
    await run(language.export.format("blue"))
    said = [(await run(code)).logs.stdout for code in (language.say_x, language.say_folder, language.say_variable)]
    assert said == ["one\n", "/workspace/a/b\n", "blue\n"]


async def test_a_context_begins_in_its_folder_with_its_environment(sandbox, language):
    await sandbox.files.make_dir("project")
    made = await sandbox.create_context(
        f"own-{language.name}", language=language.name, cwd="project", envs={"COLOUR": "it's $HOME"}
    )
    said = [
        (await sandbox.run_code(code, context=made)).logs.stdout
        for code in (language.say_folder, language.say_variable)
    ]
    assert said == ["/workspace/project\n", "it's $HOME\n"]
    await sandbox.delete_context(made)


async def test_a_variable_of_one_execution_is_gone_in_the_next(run, language):
    value = "a 'b' \"c\" $HOME\n`d` \\ é"
    assert (await run(language.say_variable, envs={"COLOUR": value})).logs.stdout == value + "\n"
    assert (await run(language.say_variable)).logs.stdout == "\n"


async def test_both_streams_come_apart_and_nothing_is_added_to_them(run, language):
    execution = await run(f"{language.say.format('out')}\n{language.complain.format('err')}")
    assert (execution.outcome, execution.exit_code) == (Outcome.OK, 0)
    assert (execution.logs.stdout, execution.logs.stderr) == ("out\n", "err\n")


async def test_an_empty_cell_is_no_error(run, language):
    for code in ("", "\n\n", f"{language.comment} nothing"):
        execution = await run(code)
        assert (execution.outcome, execution.logs.stdout, execution.logs.stderr) == (Outcome.OK, "", "")


async def test_a_cell_that_fails_is_an_error_of_the_code_and_the_interpreter_lives(run, language):
    await run(language.set_x.format("kept"))
    execution = await run(language.fail)
    reason, name, code = language.failure
    assert (execution.outcome, execution.blame, execution.reason) == ("error", "code", reason)
    assert (execution.error.name, execution.exit_code, execution.lost) == (name, code, ())
    assert (await run(language.say_x)).logs.stdout == "kept\n"


async def test_what_is_not_the_language_is_an_error_and_the_interpreter_lives(run, language):
    await run(language.set_x.format("kept"))
    execution = await run(language.not_the_language)
    assert (execution.outcome, execution.blame, execution.logs.stdout) == ("error", "code", "")
    assert (execution.reason, execution.error.name, execution.lost) == ("Exception", "SyntaxError", ())
    assert execution.error.value
    assert (await run(language.say_x)).logs.stdout == "kept\n"


async def test_standard_input_is_empty(run, language):
    assert (await run(language.read_input)).logs.stdout == "''\n"


async def test_bytes_that_are_no_text_come_through(run, language):
    execution = await run(language.say_bytes)
    assert (execution.outcome, execution.logs.stdout) == (Outcome.OK, "a�\0b")


async def test_a_mebibyte_of_code_is_run(run, language):
    code = language.say.format("line") + "\n"
    execution = await run(f"{language.comment} {'x' * MIB}\n{code * 3}")
    assert execution.logs.stdout == "line\n" * 3


async def test_a_flood_is_cut_to_its_limit_with_the_exact_count_of_what_is_missing(run, language):
    execution = await run(language.flood, output_limit=64 << 10)
    assert execution.outcome is Outcome.OK
    kept = len(execution.logs.stdout)
    assert kept + sum(gap.dropped_bytes for gap in execution.logs.gaps) == 64 * MIB == execution.usage.stdout_bytes
    assert kept <= 64 << 10


async def test_output_comes_while_the_cell_runs(sandbox, made, language):
    seen = asyncio.Event()
    cell = asyncio.create_task(
        sandbox.run_code(f"{language.say.format('on')}\n{language.spin}", context=made, on_stdout=lambda _: seen.set())
    )
    await asyncio.wait_for(seen.wait(), 60)
    assert await sandbox.interrupt(made)
    assert (await cell).logs.stdout == "on\n"


@pytest.mark.parametrize("what", ["wait", "spin"])
async def test_a_deadline_ends_the_cell_and_the_variables_are_kept(run, language, what):
    after = language.say.format("never")
    # The code has a second to react: on a machine that is busy it may not come to that each time.
    for _ in range(5):
        await run(language.set_x.format("kept"))
        execution = await run(f"{language.say.format('begun')}\n{getattr(language, what)}\n{after}", timeout=0.5)
        assert (execution.outcome, execution.blame, execution.reason) == ("timeout", "limit", "DeadlineExceeded")
        if not execution.lost:
            break
    assert (execution.logs.stdout, execution.lost) == ("begun\n", ())
    assert (await run(language.say_x)).logs.stdout == "kept\n"


async def test_an_interrupt_ends_what_runs_and_the_variables_are_kept(sandbox, made, run, language):
    cell = asyncio.create_task(run(f"{language.set_x.format('kept')}\n{language.spin}"))
    await until(lambda: busy(sandbox, made))
    assert await sandbox.interrupt(made, grace=60)
    execution = await cell
    assert (execution.outcome, execution.blame, execution.reason) == ("interrupted", "policy", "Interrupted")
    assert (execution.error.name, execution.lost) == (language.interrupted, ())
    after = await run(language.say_x)
    assert after.logs.stdout in ("kept\n", language.unset)


async def test_an_interrupt_while_nothing_runs_has_no_effect(sandbox, made, run, language):
    await run(language.set_x.format("kept"))
    assert await sandbox.interrupt(made) is False
    assert (await run(language.say_x)).logs.stdout == "kept\n"


async def test_what_does_not_mind_an_interrupt_is_killed_and_it_is_said_what_is_lost(run, language):
    execution = await run(language.deaf, timeout=0.5)
    assert (execution.outcome, execution.lost) == ("timeout", LOST)
    after = await run(language.say_x)
    assert (after.logs.stdout, after.lost) == (language.unset, LOST)


async def test_an_interpreter_that_stops_itself_is_ended_at_its_deadline(run, language):
    execution = await run(language.stop_itself, timeout=0.5)
    assert (execution.outcome, execution.reason) == ("timeout", "DeadlineExceeded")
    after = await run(language.say.format("on"))
    assert (after.logs.stdout, after.lost) == ("on\n", execution.lost)


@pytest.mark.parametrize(
    ("what", "reason", "exit_code", "signal"),
    [
        ("end", "InterpreterExited", 0, ""),
        ("end_with_3", "InterpreterExited", 3, ""),
        ("crash", "InterpreterCrashed", 137, "SIGKILL"),
    ],
)
async def test_the_end_of_the_interpreter_is_an_outcome(run, language, what, reason, exit_code, signal):
    await run(language.set_x.format("gone"))
    execution = await run(f"{language.say.format('before')}\n{getattr(language, what)}")
    assert (execution.outcome, execution.blame, execution.reason) == ("killed", "code", reason)
    assert (execution.exit_code, execution.signal, execution.lost) == (exit_code, signal, LOST)
    assert execution.logs.stdout == "before\n"
    after = await run(language.say_x)
    assert (after.outcome, after.logs.stdout, after.lost) == (Outcome.OK, language.unset, LOST)


async def test_an_interpreter_that_is_killed_between_two_cells_is_replaced_and_it_is_said(sandbox, made, run, language):
    pid = (await run(language.say_own_pid)).logs.stdout.strip()
    await sandbox.commands.run(f"kill -KILL {pid}")

    async def has_ended():
        return (await state_of(sandbox, made)).state == "ended"

    await until(has_ended)
    assert (await run(language.say.format("on"))).lost == LOST


async def test_a_restart_gives_a_fresh_interpreter(sandbox, made, run, language):
    await run(language.set_x.format("gone"))
    assert (await sandbox.restart_context(made)).generation == 2
    after = await run(language.say_x)
    assert (after.logs.stdout, after.lost) == (language.unset, ())


async def test_background_processes_of_a_cell_live_on_until_the_context_ends(sandbox, made, run, language):
    pid = (await run(language.start_daemon)).logs.stdout.strip()
    alive = f"kill -0 {pid}"
    assert (await run(language.say.format("on"))).outcome is Outcome.OK
    assert (await sandbox.commands.run(alive)).exit_code == 0
    await sandbox.restart_context(made)

    async def is_gone():
        return (await sandbox.commands.run(alive)).exit_code != 0

    # One that has been killed has its pid until it is reaped.
    await until(is_gone)


async def test_files_that_a_cell_changed_are_named(run, language):
    name = f"made-by-{language.name}"
    assert (await run(language.write.format(name))).files.created == (name,)
    assert (await run(language.write.format(name))).files.modified == (name,)
    assert not (await run(language.say.format("nothing"))).files


async def test_usage_is_that_of_the_execution(run, language):
    # Written to a file, so that a slow machine has its time: the figure has steps of 10 ms.
    burnt = (await run(language.burn)).usage
    assert burnt.cpu_seconds > 0.1
    assert (await run(language.say.format("on"))).usage.cpu_seconds < burnt.cpu_seconds
    assert (await run(language.hold)).usage.peak_memory_bytes > 8 * MIB


async def test_a_cell_that_hoards_memory_ends_and_the_sandbox_lives(starting, language):
    async with starting(limits={"memory_bytes": 512 * MIB, "tmp_bytes": 128 * MIB}) as executor:
        sandbox = executor.sandbox
        execution = await sandbox.run_code(language.hoard, language=language.name, timeout=120)
        assert (execution.outcome, execution.blame, execution.reason) == ("memory", "limit", "MemoryLimit")
        after = await sandbox.run_code(language.say.format("on"), language=language.name)
        assert (after.logs.stdout, after.lost) == ("on\n", execution.lost)


async def test_a_fork_bomb_ends_and_the_next_cell_works(starting, language):
    async with starting(limits={"processes": 64}) as executor:
        sandbox = executor.sandbox
        execution = await sandbox.run_code(language.fork_bomb, language=language.name, timeout=2)
        assert execution.blame != "platform"
        await sandbox.restart_context("default" if language.name == "python" else f"default-{language.name}")
        after = await sandbox.run_code(language.say.format("on"), language=language.name, timeout=60)
        assert after.logs.stdout == "on\n"
        assert not executor.ended


async def test_streams_that_a_cell_closed_are_there_in_the_next(run, language):
    await run(language.set_x.format("kept"))
    await run(language.close_streams)
    execution = await run(f"{language.say_x}\n{language.complain.format('err')}")
    assert (execution.logs.stdout, execution.logs.stderr, execution.lost) == ("kept\n", "err\n", ())


# The parent of a context of Python is PID 1 itself.
@pytest.mark.needs("a PID 1 that cannot be killed from below")
async def test_code_that_kills_its_parent_ends_no_more_than_its_context(sandbox, run, language, neighbour):
    await sandbox.run_code("kept = 1")
    execution = await run(language.kill_parent)
    assert execution.blame in (None, "code")
    assert (await run(language.say.format("on"))).logs.stdout == "on\n"
    assert (await sandbox.run_code("kept")).text == "1"
    assert (await neighbour.run_code("here")).text == "'untouched'"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"language": "ruby"}, "cannot create a context for 'ruby': languages are python, bash, javascript, sql"),
        ({"language": "c++"}, "cannot create a context for 'c++': languages are python, bash, javascript, sql"),
        ({"language": "Python"}, "cannot create a context for 'Python': languages are python, bash, javascript, sql"),
        (
            {"language": "ruby", "context": "default"},
            "cannot run code in 'ruby': languages are python, bash, javascript, sql",
        ),
        ({"language": "bash", "context": "default"}, "cannot run bash in context default: its language is python"),
        ({"language": "python", "context": "default-bash"}, "its language is bash"),
    ],
)
async def test_a_language_that_is_not_the_contexts_is_refused_by_name(sandbox, options, why):
    assert (await sandbox.run_code("true", language="bash")).ok
    with pytest.raises(InvalidArgument, match=re.escape(why)):
        await sandbox.run_code("1", **options)


async def test_a_language_that_is_the_contexts_is_taken(sandbox):
    assert (await sandbox.run_code("echo $((1 + 1))", language="bash")).logs.stdout == "2\n"
    assert (await sandbox.run_code("echo 3", language="bash", context="default-bash")).logs.stdout == "3\n"
    assert (await sandbox.run_code("4", language="python", context="default")).text == "4"
