import runpy
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from sandfleet.codeact import Conversation, FinalAnswer, RunCode, RunCommand, Step, Verdict
from sandfleet.codeact.evidence import Evidence
from sandfleet.codeact.policies.scripted import ScriptedPolicy
from sandfleet.demo.session import AGENTS, CHAOS, check_inputs, plans
from sandfleet.demo.task import InputMissing, numbers, package_file
from sandfleet.demo.tasks import csv_import, exploration, gross_margin, least_squares, unit_tests
from sandfleet.values.execution import Blame, CommandResult, ExecutionError, Outcome

EVERY_AGENT = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.TITLE)


def test_the_input_of_every_task_is_installed() -> None:
    check_inputs()


@EVERY_AGENT
def test_a_task_is_the_same_for_the_same_seed(agent: object) -> None:
    assert agent.make(3).files == agent.make(3).files


@EVERY_AGENT
def test_tasks_differ_by_seed(agent: object) -> None:
    tasks = [agent.make(seed) for seed in range(3)]
    assert len({(task.prompt, *task.files.values(), str(task.script)) for task in tasks}) == 3


@EVERY_AGENT
def test_an_agent_without_a_model_says_so(agent: object) -> None:
    assert "no model" in ScriptedPolicy(agent.TITLE, agent.make(0).script).summary


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(InputMissing, match="the package no_such_package is not installed"):
        package_file("no_such_package", "data.csv")
    with pytest.raises(InputMissing, match=r"cannot read nothing\.csv of the package email"):
        package_file("email", "nothing.csv")


def test_sessions_are_shared_out_in_turn_and_one_has_an_accident() -> None:
    made = plans(64, chaos=True)
    assert [plan.agent for plan in made[:6]] == [0, 1, 2, 3, 4, 0]
    assert len({(plan.agent, plan.seed) for plan in made}) == 64
    assert [plan.agent for plan in made if plan.chaos] == [CHAOS]
    assert not any(plan.chaos for plan in plans(64, chaos=False))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("0.6; 2.2",), (0.6, 2.2)),
        (("slope = 0.6; intercept = 2.2",), (0.6, 2.2)),
        (("1,234.5",), (1234.5,)),
        (("-57.74",), (-57.74,)),
        (("no",), ()),
    ],
)
def test_numbers_are_read_from_an_answer(values: tuple[str, ...], found: tuple[float, ...]) -> None:
    assert numbers(values) == found


def test_the_line_of_least_squares_has_slope_three_fifths_and_the_intercept_that_follows() -> None:
    slope, intercept = least_squares.line()
    assert (slope, intercept) == (Fraction(3, 5), Fraction(11, 5))
    # Of all lines it is the one whose residuals sum up to nothing, also when weighted with x.
    residuals = [y - slope * x - intercept for x, y in ((1, 2), (2, 4), (3, 5), (4, 4), (5, 5))]
    assert sum(residuals) == sum(x * r for x, r in enumerate(residuals, 1)) == 0


def test_the_margin_of_known_orders_is_exact() -> None:
    data = 'order,quantity,unit_price,unit_cost,discount_percent\n1001,2,"1,000.05","0.99",3\n1002,1,"10.00","4.00",\n'
    revenue = 2 * Fraction("1000.05") * Fraction(97, 100) + 10
    margin = revenue - 2 * Fraction("0.99") - 4
    assert gross_margin.expected(data) == (margin, margin / revenue)


@pytest.mark.parametrize("seed", range(20))
def test_orders_are_47_and_messy(seed: int) -> None:
    lines = gross_margin.orders_csv(seed).splitlines()
    assert len(lines) == 48
    assert any(line.endswith(",") for line in lines)
    assert any(line.count(",") > 4 for line in lines[1:])


def test_share_prices_are_summed_up_without_the_second_row_of_a_month() -> None:
    rows = ["# a comment", "Date,X", "2020-01-01,100", "2020-01-15,", "2020-02-01,110", "2020-02-28,999"]
    rows += ["2020-03-01,99", "2020-04-01,99"]
    assert exploration.summary("\n".join(rows).encode(), "X") == (0, "2020-03", pytest.approx(-10.0))


def test_bit_patterns_are_counted_by_their_exponents() -> None:
    data = b"dtype,input,output,ulperrortol\n## comment ##\nnp.float32,0x1,0x7f800000,2\nnp.float32,0x1,0x3f800000,2\n"
    data += b"np.float64,0x1,0x7ff8000000000000,2\nnp.float64,0x1,0x3ff0000000000000,2\nnp.float32,0x1,0xff800000,2\n"
    assert csv_import.ulp_counts(data) == (5, 3)


class Workspace:
    """Stands in for a sandbox as far as a check goes: runs the check's source here, on this repository's own code."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = self
        self.commands = self

    async def write(self, name: str, source: str) -> None:
        (self.path / name).write_text(source)

    async def run(self, argv: list[str], *, timeout: float) -> CommandResult:
        try:
            runpy.run_path(str(self.path / argv[1]))
        except (AssertionError, KeyError) as error:
            return CommandResult("c", Outcome.ERROR, 1, "", f"{type(error).__name__}: {error}\n")
        return CommandResult("c", Outcome.OK)


@pytest.mark.parametrize("bug", unit_tests._BUGS, ids=lambda bug: bug.test)
async def test_the_hosts_check_notices_each_bug_and_passes_without(
    bug: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unit_tests._MODULE.count(bug.right) == 1
    assert unit_tests._MODULE.count(bug.wrong) == 0
    for source, right in ((unit_tests._MODULE.replace(bug.right, bug.wrong), False), (unit_tests._MODULE, True)):
        module = SimpleNamespace()
        exec(source, module.__dict__)
        monkeypatch.setitem(__import__("sys").modules, "toolbox", module)
        assert (await unit_tests._verify(("Ran 6 tests",), Workspace(tmp_path)) == "") is right


@pytest.mark.parametrize("seed", range(15))
def test_each_session_of_the_unit_tests_has_two_bugs_whose_lines_can_be_found(seed: int) -> None:
    broken = unit_tests.make(seed).files["toolbox.py"].decode()
    present = [bug for bug in unit_tests._BUGS if broken.count(bug.wrong) == 1 and bug.right not in broken]
    assert len(present) == 2


WRONG = [
    (csv_import, "26.0"),
    (exploration, "9; 2000-10; -57.74"),
    (unit_tests, "Ran 5 tests"),
    (least_squares, "0.6; 2.0"),
    (gross_margin, "135300.5804; 1/2"),
]


@pytest.mark.parametrize(("agent", "answer"), WRONG, ids=[agent.TITLE for agent, _ in WRONG])
async def test_the_host_does_not_take_a_wrong_answer(agent: object, answer: str, tmp_path: Path) -> None:
    trouble = await agent.make(0).verify((answer,), Workspace(tmp_path))
    assert trouble.startswith("expected")


def failing(number: int, action: RunCode, name: str, value: str) -> Step:
    error = ExecutionError(name, value)
    return Step(number, action, Verdict.FAILED, "", Evidence(f"e{number}", Outcome.ERROR, Blame.CODE, error=error))


async def test_fixes_add_up_in_the_order_in_which_failures_are_met() -> None:
    policy = ScriptedPolicy("import", csv_import.make(0).script)
    first = await policy(Conversation("t"))
    steps = (failing(1, first, "ValueError", "Invalid isoformat string: '19-Sep-03'"),)
    second = await policy(Conversation("t", steps))
    steps += (failing(2, second, "KeyError", "'Adj Close'"),)
    third = await policy(Conversation("t", steps))
    assert [("%d-%b-%y" in cell.code, "Adj. Close*" in cell.code) for cell in (first, second, third)] == [
        (False, False),
        (True, False),
        (True, True),
    ]


async def test_a_repair_follows_the_name_of_the_test_that_failed() -> None:
    policy = ScriptedPolicy("tests", unit_tests.make(0).script)
    command = await policy(Conversation("t"))
    assert isinstance(command, RunCommand)
    log = "FAIL: test_median (test_toolbox.Toolbox.test_median)\nFAILED (failures=1)"
    seen = Evidence("e1", Outcome.ERROR, Blame.CODE, stdout=log, exit_code=1)
    action = await policy(Conversation("t", (Step(1, command, Verdict.FAILED, "", seen),)))
    assert action.intent == "test_median fails: repair the line"


async def test_who_lost_the_variables_goes_on_from_the_file() -> None:
    policy = ScriptedPolicy("exploration", exploration.make(0).script)
    seen = Evidence("e1", Outcome.LOST, Blame.PLATFORM, lost=("variables", "processes", "tmp"))
    action = await policy(Conversation("t", (Step(1, RunCode(""), Verdict.LOST, "", seen),)))
    assert 'read_csv("clean.csv"' in action.code


@pytest.mark.parametrize("error", ["NameError", "AssertionError"])
async def test_who_was_rolled_back_by_several_cells_goes_on_from_the_file(error: str) -> None:
    policy = ScriptedPolicy("exploration", exploration.make(0, chaos=True).script)
    killed = Step(1, RunCode(""), Verdict.FAILED, "", Evidence("e1", Outcome.KILLED, Blame.CODE, lost=("processes",)))
    looked = await policy(Conversation("t", (killed,)))
    assert looked.intent == "rolled back: all is there, go on"
    seen = Evidence("e2", Outcome.ERROR, Blame.CODE, error=ExecutionError(error, "", ""))
    action = await policy(Conversation("t", (killed, Step(2, looked, Verdict.FAILED, "", seen))))
    assert 'read_csv("clean.csv"' in action.code


async def test_an_intercept_from_memory_is_offered_on_the_execution_that_did_not_print_it() -> None:
    policy = ScriptedPolicy("line", least_squares.make(0).script)
    seen = Evidence("e1", Outcome.OK, stdout="slope 0.6\n")
    answer = await policy(Conversation("t", (Step(1, RunCode(""), Verdict.OK, "", seen),)))
    assert isinstance(answer, FinalAnswer)
    assert answer.values == ("0.6", "1.8")
