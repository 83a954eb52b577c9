"""Bash as a language: what its users expect of a shell that lives on, and what they do to it."""

import asyncio
import re

import pytest
from contract.executor.harness import until
from contract.executor.shells import run_fixture, said, shell_fixture
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")
# pytest finds a fixture by its name in the module.
shell, run = shell_fixture, run_fixture


@pytest.mark.parametrize(
    ("before", "code", "stdout"),
    [
        ('f() { echo "f of $1"; }', "f me", "f of me\n"),
        ("alias greet='echo hello'", "greet you", "hello you\n"),
        ("declare -A ages=([ann]=41)", "echo ${ages[ann]}", "41\n"),
        ("set -- a b c", "echo $# $2", "3 b\n"),
        ("shopt -s nullglob", "echo /is/not/*", "\n"),
        ("set -o noglob", "echo /*", "/*\n"),
        ("umask 027", "umask", "0027\n"),
        ("pushd /tmp >/dev/null", "popd >/dev/null; pwd", "/workspace\n"),
        ("exec 7>/tmp/seven; echo kept >&7", "echo more >&7; cat /tmp/seven", "kept\nmore\n"),
        ("(exit 7)", "echo $?", "7\n"),
        ("sleep 0.1 & job=$!", "wait $job; echo $?", "0\n"),
        ("trap 'echo bye' EXIT", "trap -p EXIT", "trap -- 'echo bye' EXIT\n"),
        ("x=1; local_scope() { local x=2; }; local_scope", "echo $x", "1\n"),
        ("cat() { echo mine; }", "cat /etc/passwd", "mine\n"),
        ("set -o pipefail", "false | true; echo $?", "1\n"),
    ],
)
async def test_what_a_cell_sets_is_there_in_the_next(run, before, code, stdout):
    await run(before)
    assert await said(run, code) == stdout


MANY = """x='a b'; declare -A m=([k]='v w'); list=(1 '2 3'); readonly fixed=5; export E=1; unset HOME; umask 027
f() { echo "f $1 $x"; }; shopt -s extglob; mkdir -p d; cd d"""
SHOW = """echo "$x, ${m[k]}, ${list[1]}, $fixed, ${HOME-none}"; f q; pwd; umask; shopt -q extglob && env | grep ^E="""


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [
        ("exit 3", 3),
        ("set -euo pipefail; echo $missing; echo never", 1),
        ("echo ${x1:?no}", 1),
        ("g() { exit 4; }; g", 4),
    ],
)
async def test_what_ends_a_script_ends_the_cell_and_keeps_what_the_shell_had(run, end, exit_code):
    await run(MANY)
    ended = await run(end)
    assert (ended.outcome, ended.reason, ended.exit_code, ended.lost) == ("error", "ExitCode", exit_code, ())
    assert "never" not in ended.logs.stdout
    lines = (await run(SHOW)).logs.stdout.splitlines()
    assert lines == ["a b, v w, 2 3, 5, none", "f q a b", "/workspace/d", "0027", "E=1"]
    # Interrupts reach the new shell, too.
    assert (await run("sleep 1000", timeout=0.2)).outcome == "timeout"
    assert await said(run, "echo $x") == "a b\n"


async def test_exit_0_is_the_end_of_a_cell_that_went_well(run):
    ended = await run("x=1; exit 0; echo never")
    assert (ended.outcome, ended.logs.stdout) == ("ok", "")
    assert await said(run, "echo $x") == "1\n"


async def test_options_that_end_scripts_last(run):
    await run("set -eu; echo $missing")
    assert await said(run, "echo $-; set +eu") == "ehuBE\n"


async def test_heredocs_quotes_and_many_lines_are_as_in_a_script(run):
    code = "cat <<'END'\nit's $HOME\nEND\ncat <<END\n$((6 * 7))\nEND\nfor i in 1 2\ndo\n  echo \"$i\"\ndone\n"
    assert await said(run, code) == "it's $HOME\n42\n1\n2\n"


async def test_a_heredoc_without_its_end_ends_with_the_cell(run):
    execution = await run("cat <<END\ntext")
    assert (execution.logs.stdout, execution.outcome) == ("text\n", Outcome.OK)
    assert "here-document" in execution.logs.stderr
    assert await said(run, "echo on") == "on\n"


@pytest.mark.parametrize(
    "code", ["echo 'open", 'echo "open', "if true", "f() {", "$(", "case x in", ")", "done", "<<<"]
)
async def test_a_syntax_error_ends_the_cell_alone(run, code):
    await run("kept=1")
    execution = await run(code)
    assert (execution.outcome, execution.blame, execution.reason, execution.exit_code) == (
        "error",
        "code",
        "Exception",
        2,
    )
    assert execution.error.name == "SyntaxError"
    assert re.match(r"line \d+: .*(syntax error|unexpected)", execution.error.value)
    assert "syntax error" in execution.logs.stderr or "unexpected" in execution.logs.stderr
    assert await said(run, "echo $kept") == "1\n"


@pytest.mark.parametrize(
    "code",
    [
        # What the cell does is wrong, and not how it is written.
        "eval 'if ('",
        "printf 'if (' >/tmp/wrong.sh; . /tmp/wrong.sh",
        "bash -c 'if ('",
        "ls /is/not/there",
        "shopt -s extglob\ncase x in !(y)) (exit 2) ;; esac",
        "cat <<END >/dev/null; (exit 2)\ntext",
    ],
)
async def test_a_cell_that_can_be_read_and_fails_with_2_is_no_syntax_error(run, code):
    execution = await run(code)
    assert (execution.reason, execution.exit_code, execution.error.name) == ("ExitCode", 2, "ExitCode")


async def test_the_options_of_the_shell_decide_what_is_a_syntax_error(run):
    code = "case x in +(y)) ;; *) (exit 2) ;; esac"
    assert (await run(code)).error.name == "SyntaxError"
    await run("shopt -s extglob")
    assert (await run(code)).error.name == "ExitCode"


async def test_errors_name_their_line(run):
    assert "line 2: nosuch: command not found" in (await run("\nnosuch")).logs.stderr


@pytest.mark.parametrize(
    ("code", "exit_code", "value"),
    [
        ("false", 1, "exit code 1"),
        ("(exit 42)", 42, "exit code 42"),
        ("return 9; echo never", 9, "exit code 9"),
        ("nosuch", 127, "exit code 127"),
        ("sh -c 'kill -TERM $$'", 143, "exit code 143 (SIGTERM)"),
    ],
)
async def test_the_exit_code_of_the_last_command_is_the_cell_s(run, code, exit_code, value):
    execution = await run(code)
    assert (execution.outcome, execution.blame, execution.reason) == ("error", "code", "ExitCode")
    assert execution.message == f"The cell ended with exit code {exit_code}."
    assert (execution.exit_code, execution.error.name, execution.error.value) == (exit_code, "ExitCode", value)
    assert execution.logs.stdout == ""


@pytest.mark.parametrize(
    "code",
    [
        "false; echo never",
        "f() { g; echo never; }; g() { grep -q a /dev/null; echo never; }; f; echo never",
        "while :; do false; done; echo never",
        "eval 'false; echo never'",
        "x=$(false); echo never",
        "(false; echo never); echo never",
        "set -o pipefail; false | true; echo never",
    ],
)
async def test_set_e_ends_the_cell_that_fails_and_not_the_shell(run, code):
    await run("set -e; kept=1")
    execution = await run(code)
    assert (execution.outcome, execution.reason, execution.exit_code) == ("error", "ExitCode", 1)
    assert (execution.logs.stdout, execution.lost) == ("", ())
    # The option lasts, as any other.
    assert await said(run, "echo $kept; false || echo caught; false; echo never") == "1\ncaught\n"


async def test_set_e_passes_over_what_is_tested(run):
    code = "set -e; if false; then :; fi; ! true; false || true; f() { false; echo in; }; f && echo end"
    assert await said(run, code) == "in\nend\n"


async def test_traces_are_of_the_code_alone(run):
    await run("set -x")
    execution = await run("echo traced")
    assert execution.logs.stderr.splitlines() == ["++ echo traced"]
    execution = await run("PS4='$(echo evil >&2)> '; true")
    assert "evil" in execution.logs.stderr
    assert "builtin" not in execution.logs.stderr


async def test_background_jobs_say_nothing_and_their_output_comes_with_a_later_cell(run):
    execution = await run("(until [ -e /tmp/late ]; do sleep 0.02; done; echo late) & echo now")
    assert (execution.logs.stdout, execution.logs.stderr) == ("now\n", "")
    assert await said(run, "touch /tmp/late; wait; echo then") == "late\nthen\n"


async def test_a_background_job_that_holds_the_output_does_not_hold_the_cell(run):
    assert (await run("sleep 1000 & echo done")).outcome is Outcome.OK
    assert await said(run, "kill $!; wait; echo on") == "on\n"


async def test_a_program_that_does_not_mind_an_interrupt_is_killed_and_the_shell_is_not(sandbox, shell, run):
    await run("kept=1; sleep 1000 & job=$!")
    stubborn = (
        'python3 -c \'import signal, time; signal.signal(2, signal.SIG_IGN); open("/tmp/deaf", "w"); time.sleep(1000)\''
    )
    cell = asyncio.create_task(run(f"{stubborn}; echo never"))
    await until(lambda: sandbox.files.exists("/tmp/deaf"))
    assert await sandbox.interrupt(shell, grace=20)
    execution = await cell
    assert (execution.outcome, execution.logs.stdout, execution.lost) == ("interrupted", "", ())
    # What an earlier cell has in the background is not what runs.
    assert await said(run, "echo $kept; kill -0 $job && echo alive") == "1\nalive\n"


@pytest.mark.parametrize(
    "code",
    [
        "f() { sleep 1000; echo never; }; f; echo never",
        "x=$(sleep 1000); echo never",
        "sleep 1000 | cat; echo never",
        "(sleep 1000; echo never); echo never",
        "for ((;;)); do [[ 1 ]]; done",
        "until false; do true; done; echo never",
        "sleep 1000 & wait; echo never",
        "eval 'while :; do :; done'; echo never",
        "f() { g; echo never; }; g() { while sleep 0.05; do :; done; }; f; echo never",
    ],
)
async def test_an_interrupt_leaves_the_whole_cell(sandbox, shell, run, code):
    await run("rm -f /tmp/at-it")
    cell = asyncio.create_task(run(f"touch /tmp/at-it\n{code}"))
    await until(lambda: sandbox.files.exists("/tmp/at-it"))
    assert await sandbox.interrupt(shell, grace=60)
    execution = await cell
    assert (execution.outcome, execution.logs.stdout, execution.lost) == ("interrupted", "", ())
    assert await said(run, "trap -p DEBUG; shopt extdebug; echo on") == "extdebug       \toff\non\n"


async def test_an_interrupt_at_whatever_moment_leaves_the_shell_as_it_was(sandbox, shell, run):
    await run("kept=1")
    for number in range(40):
        cell = asyncio.create_task(run("f() { sleep 0.01; $(true); }; f; f"))
        # Before the cell begins, while it runs, when it has ended.
        await asyncio.sleep(number / 1000)
        await sandbox.interrupt(shell, grace=30)
        execution = await cell
        assert (execution.outcome in (Outcome.OK, Outcome.INTERRUPTED), execution.lost) == (True, ())
    assert await said(run, "echo $kept; trap -p DEBUG; shopt extdebug; echo on") == "1\nextdebug       \toff\non\n"


async def test_an_interrupt_before_the_shell_has_begun_is_made_up_for(sandbox, context):
    await sandbox.files.write("slow.sh", "touch /tmp/begins; until [ -e /tmp/go ]; do sleep 0.02; done")
    made = await sandbox.create_context("slow-shell", language="bash", envs={"BASH_ENV": "/workspace/slow.sh"})
    cell = asyncio.create_task(sandbox.run_code("unset BASH_ENV; while :; do :; done", context=made, timeout=300))
    await until(lambda: sandbox.files.exists("/tmp/begins"))

    async def busy():
        return any(
            each.context_id == made.context_id and each.state == "busy" for each in await sandbox.list_contexts()
        )

    await until(busy)
    # Asked for twice, the second time after half of the grace: the first may come before the cell itself.
    asked = asyncio.create_task(sandbox.interrupt(made, grace=60))
    await sandbox.run_code("import time; time.sleep(0.5); open('/tmp/go', 'w').close()", context=context)
    assert await asked
    execution = await cell
    assert (execution.outcome, execution.lost) == ("interrupted", ())
    assert execution.error.name == "Interrupted"
    await sandbox.delete_context(made)


async def test_shells_do_not_see_each_other(sandbox, run):
    other = await sandbox.create_context("other-shell", language="bash")
    await run("mine=1; cd /tmp")
    assert (await sandbox.run_code("echo ${mine-none} $PWD", context=other)).logs.stdout == "none /workspace\n"
    await sandbox.delete_context(other)


async def test_a_shell_has_no_terminal_no_prompt_and_no_history(run):
    await run("PS1='prompt> '; PS2='more> '; PROMPT_COMMAND='echo prompted'")
    execution = await run("tty; echo $- | tr -dc imsc; history | wc -l; echo end")
    assert (execution.logs.stdout, execution.logs.stderr) == ("not a tty\n0\nend\n", "")


async def test_the_shell_inherits_nothing_of_the_process_that_drives_it(run):
    kinds = (await said(run, "ls -l /proc/$$/fd | grep -o 'socket\\|anon_inode\\|memfd'; ls /proc/self/fd")).split()
    assert kinds == ["0", "1", "2", "3"]


async def test_the_streams_can_be_opened_by_their_names(sandbox, run):
    code = "echo out >/dev/stdout; echo err >/dev/stderr; echo fd >/proc/self/fd/1"
    execution = await run(code)
    assert (execution.logs.stdout, execution.logs.stderr) == ("out\nfd\n", "err\n")
    result = await sandbox.commands.run(code)
    assert (result.stdout, result.stderr) == ("out\nfd\n", "err\n")


async def test_what_was_written_cannot_be_taken_back_by_its_name(run):
    # Where the executor is of the same user, modes keep no process out.
    execution = await run('[ "$(stat -Lc %u /proc/self/fd/1)" = "$(id -u)" ] || cat </proc/self/fd/1')
    assert execution.outcome is Outcome.OK or "Permission denied" in execution.logs.stderr


async def test_code_with_a_nul_is_refused_whole(run):
    execution = await run("touch /workspace/ran\necho a\0b")
    assert (execution.reason, execution.error.name) == ("Exception", "SyntaxError")
    assert execution.error.value == "cannot run the code: it holds a NUL byte"
    assert not await said(run, "ls /workspace/ran 2>/dev/null")


async def test_programs_that_reserve_much_and_use_little_run(run):
    # Control: in a Python context, whose address space has an end, the same does not.
    code = "python3 -c 'import mmap; mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)'"
    assert (await run(code)).outcome is Outcome.OK


async def test_they_do_not_in_a_context_of_python(sandbox, context):
    code = "import mmap; mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)"
    assert (await sandbox.run_code(code, context=context)).outcome is Outcome.ERROR
