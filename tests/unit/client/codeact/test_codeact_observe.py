import pytest
from sandfleet.codeact import observe
from sandfleet.codeact.evidence import Evidence, of_command, of_execution
from sandfleet.values.environment import Notice
from sandfleet.values.execution import (
    Blame,
    CommandResult,
    Execution,
    ExecutionError,
    FileChanges,
    Frame,
    Gap,
    Logs,
    Outcome,
    Result,
    Rollback,
    Stream,
    Usage,
)


def told(**fields: object) -> list[str]:
    return observe.observation(3, Evidence("e", **{"outcome": Outcome.OK, **fields})).splitlines()


def test_the_error_comes_first_with_the_users_own_lines() -> None:
    frames = (Frame("<cell 2>", 4, "load", "    return float(row[0])"),)
    error = ExecutionError("ValueError", "could not convert string to float: ''", "Traceback …", frames)
    lines = told(outcome=Outcome.ERROR, blame=Blame.CODE, error=error, stdout="reading\n")
    assert lines[0] == "[execution 3] ERROR: ValueError: could not convert string to float: ''"
    assert lines[1] == "  at <cell 2>, line 4, in load: return float(row[0])"
    assert lines[2] == "stdout: reading"
    assert "Traceback …" not in lines


def test_an_error_without_lines_of_the_user_shows_the_traceback() -> None:
    error = ExecutionError("SyntaxError", "invalid syntax", "  File x\n    a b\nSyntaxError")
    assert "traceback:" in told(outcome=Outcome.ERROR, error=error)


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Outcome.TIMEOUT, "TIMEOUT"),
        (Outcome.MEMORY, "OUT OF MEMORY"),
        (Outcome.KILLED, "KILLED"),
        (Outcome.INTERRUPTED, "INTERRUPTED"),
        (Outcome.DENIED, "DENIED"),
        (Outcome.LOST, "no fault of the code"),
    ],
)
def test_each_outcome_is_named_with_its_message(outcome: Outcome, word: str) -> None:
    head = told(outcome=outcome, message="the deadline of 5 s passed")[0]
    assert word in head
    assert head.endswith("the deadline of 5 s passed")


def test_refused_hosts_are_told_in_a_line() -> None:
    line = "note: refused by the egress list: a.test, b.test:8443; retries do not help"
    execution = Execution("e", Outcome.ERROR, denied_hosts=("a.test", "b.test:8443"))
    command = CommandResult("e", Outcome.OK, denied_hosts=execution.denied_hosts)
    for evidence in (of_execution(execution), of_command(command)):
        assert line in observe.observation(3, evidence).splitlines()
    assert not any("refused" in each for each in told())


def test_an_exit_code_is_told() -> None:
    assert told(outcome=Outcome.ERROR, exit_code=127)[0] == "[execution 3] ERROR, exit code 127"


def test_what_was_lost_stands_before_the_output_and_says_that_the_files_are_there() -> None:
    lines = told(outcome=Outcome.KILLED, lost=("variables",), stdout="x")
    assert lines[1:4] == [
        "lost:",
        "  - all variables and imports of earlier steps: define again what you need",
        "  (the files in /workspace are there)",
    ]
    assert lines[4] == "stdout: x"


def test_a_new_workspace_is_reported_as_lost() -> None:
    text = observe.not_run(2, "gone", ("variables",), workspace_kept=False)
    assert "/workspace is new and empty" in text
    assert "are there" not in text


def test_files_are_told_by_kind_and_their_surplus_is_counted() -> None:
    names = tuple(f"f{n}" for n in range(15))
    lines = told(files=FileChanges(created=names, deleted=("old",), complete=False, omitted=1234))
    assert "files created: f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11 and 3 more" in lines
    assert "files deleted: old" in lines
    assert "(1,234 more files changed)" in lines


def test_a_scan_that_hit_its_bound_says_so() -> None:
    assert "(more files may have changed)" in told(files=FileChanges(complete=False))


def test_usage_is_one_line_at_the_end() -> None:
    assert told(usage=Usage(1.25, 0.5, 64 * 1024 * 1024))[-1] == "(1.25 s, 0.50 s CPU, peak 64 MiB)"


def test_a_cut_text_keeps_head_and_tail_and_counts_what_is_left_out_exactly() -> None:
    text = "".join(f"line {n:04}\n" for n in range(1000))
    short = observe.cut(text, 101)
    head, note, tail = short.split("\n[… ")[0], short.split("[… ")[1].split(" …]")[0], short.split(" …]\n")[1]
    assert text.startswith(head)
    assert text.endswith(tail)
    left_out = text[len(head) : len(text) - len(tail)]
    assert note == f"{len(left_out):,} characters, {left_out.count(chr(10))} line ends left out"
    assert len(head) + len(tail) == 101


def test_a_text_within_the_limit_is_not_touched() -> None:
    assert observe.cut("abc", 3) == "abc"


def test_a_flood_does_not_become_a_flood_for_the_model() -> None:
    assert len("\n".join(told(stdout="x" * 10_000_000, stderr="y\n" * 10_000_000))) < 10_000


def test_the_evidence_of_a_cell_has_text_results_and_names_images() -> None:
    shown = Result({"image/png": b"\x89PNG" + bytes(2130)})
    value = Result({"text/plain": "42", "text/html": "<b>42</b>"}, is_main_result=True)
    evidence = of_execution(Execution("e", Outcome.OK, results=(shown, value), logs=Logs("out", "err")))
    assert evidence.results == ("42",)
    assert evidence.shown == ("image/png, 2,134 bytes",)
    assert evidence.output == "42\nout"


def test_a_gap_in_the_output_is_told_where_it_is_with_its_bytes() -> None:
    logs = Logs("headtail", "", (Gap(Stream.STDOUT, 4, 5_000_000),))
    evidence = of_execution(Execution("e", Outcome.OK, logs=logs))
    assert evidence.stdout == "head\n[… 5,000,000 bytes were not kept here …]\ntail"
    assert evidence.dropped_bytes == 5_000_000


def test_gaps_of_a_command_stay_with_their_stream() -> None:
    gaps = (Gap(Stream.STDERR, 0, 7), Gap(Stream.STDOUT, 2, 3))
    evidence = of_command(CommandResult("e", Outcome.ERROR, 2, "ab", "cd", gaps=gaps))
    assert evidence.stdout == "ab\n[… 3 bytes were not kept here …]\n"
    assert evidence.stderr == "\n[… 7 bytes were not kept here …]\ncd"
    assert evidence.exit_code == 2


def test_a_result_that_was_too_large_is_named() -> None:
    evidence = of_execution(Execution("e", Outcome.OK, results=(Result({}, dropped_bytes=99),)))
    assert evidence.shown == ("a result of 99 bytes, too large to be sent",)
    assert evidence.dropped_bytes == 99


def test_a_rollback_is_one_line_before_what_was_lost() -> None:
    lines = told(outcome=Outcome.KILLED, lost=("processes",), rollback=Rollback(True, "m", cell_number=4))
    assert lines[1] == "rolled back: variables and imports are as before this cell; files it wrote are still there"
    assert lines[2] == "lost:"
    undone = told(outcome=Outcome.KILLED, rollback=Rollback(True, "m", cell_number=4, cells_undone=2))[1]
    assert undone.endswith("; 2 earlier cells were undone too: run them again")


def test_why_there_was_no_rollback_is_said() -> None:
    refused = Rollback(
        False, "The context could not be rolled back because a thread was running.", refused="ThreadsRunning"
    )
    lines = told(outcome=Outcome.KILLED, lost=("variables",), rollback=refused)
    assert lines[1] == "not rolled back: The context could not be rolled back because a thread was running."


def test_what_is_to_be_known_of_the_sandbox_comes_before_the_output() -> None:
    lines = told(notices=(Notice("PackagesNotInstalled", "cannot install pandas: the index has none"),), stdout="x\n")
    assert lines[1:3] == ["note: cannot install pandas: the index has none", "stdout: x"]
