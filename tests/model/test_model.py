"""Claims and queues, checked by spin: they hold in each setting, and each rule that is missing has a counterexample."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MISSING = [tool for tool in ("spin", "cc") if shutil.which(tool) is None]
# On a machine that does other things as well a search takes longer than a test may otherwise.
pytestmark = [
    pytest.mark.skipif(
        bool(MISSING), reason=f"{' and '.join(MISSING)} missing (Debian: apt-get install spin gcc libc6-dev)"
    ),
    pytest.mark.timeout(900),
]

# What pan prints of the assertion that failed.
ONE_REQUEST_PER_POD = "holder["
ONE_POD_PER_REQUEST = "(count<2)"
NO_LOST_CLAIM = "((answer[0]!=255)||released[0])"
NO_CORPSE = "!(released[0])||(count==0)"
NO_LEAK = "((state[k]==0)||(state[k]==1))||"
NOT_TAKEN_AWAY = "(given[0]!=p)"
TOLD_OF_ITS_POD = "(holder[p]==r)"

ALONE = {"LEADERSHIPS": 1, "LOSSES": 0}
TURNS = {"LEADERSHIPS": 2, "LOSSES": 0}
LOSING = {"LEADERSHIPS": 2, "LOSSES": 1}
THREE_TURNS = {"LEADERSHIPS": 3, "LOSSES": 0}
YOUNG = {"YOUNG": 1}
BOTH_LEAD = {"LEADERSHIPS": 2, "LOSSES": 0, "SPLIT": 1}

SETTINGS = {
    "three leaderships": THREE_TURNS,
    "two lost replies": {"LEADERSHIPS": 2, "LOSSES": 2},
    "a scale-down and a deposed fleet": TURNS | {"SHRINKS": 1},
    "two requests and a scale-down": ALONE | {"REQUESTS": 2, "SHRINKS": 1, "KEEP": 1},
    "a deposed fleet that goes on": BOTH_LEAD,
    "young claims": THREE_TURNS | YOUNG,
    "young claims and a lost reply": LOSING | YOUNG,
}
MUTANTS = {
    "NO_TEST": (ALONE | {"REQUESTS": 2}, ONE_REQUEST_PER_POD),
    "RANDOM_NAME": (BOTH_LEAD, ONE_POD_PER_REQUEST),
    "WRONG_ORDER": (LOSING, NO_CORPSE),
    "NO_LIVE_GET": (ALONE, ONE_POD_PER_REQUEST),
    "BLIND_RETRY": (LOSING, NO_CORPSE),
    "OWNER_LATER": (TURNS, NO_CORPSE),
    "COMPLETE_ANY": (THREE_TURNS, NO_CORPSE),
    "ADOPT_OWNED": (LOSING, NO_CORPSE),
    "REPLACE_UNRECORDED": (THREE_TURNS, NO_CORPSE),
    "CLAIM_ID_IS_REQUEST": ({"LEADERSHIPS": 3, "LOSSES": 1}, NO_CORPSE),
    "EXISTS_IS_DONE": (BOTH_LEAD, NO_LEAK),
    "RETIRE_BLINDLY": (ALONE | {"SHRINKS": 1}, NOT_TAKEN_AWAY),
    "DELETE_ANY_VERSION": (TURNS | YOUNG, TOLD_OF_ITS_POD),
    "FORGET_OWNER": (THREE_TURNS | YOUNG, NO_CORPSE),
    "FORGET_YOUNG": (TURNS | YOUNG, NOT_TAKEN_AWAY),
    "SILENT_REFUSAL": (ALONE | {"SHRINKS": 1}, NO_LOST_CLAIM),
}

# Of queues.pml, as they stand in its assertions.
QUOTA_HOLDS = "pod[3]!=0)) ? (1) : (0) ))<2)"
NO_PART = "((pod["
WHOLE = "(answered[0]==answered[1])"
NOT_BUSY_OR_OWN = "( !(busy["
HAS_ITS_VARIABLES = "( !(asleep["
NOT_PASSED = "!(((later["
NOT_FORGOTTEN = "(st[3]==0))&&(pod[3]==0))&&(asleep[3]"

NOTHING_ELSE = {"CRASHES": 0, "DELETIONS": 0, "RUNS": 0}
LEADERS = NOTHING_ELSE | {"CRASHES": 1}
GANGS = LEADERS | {"GANG": 1}
ELSEWHERE = NOTHING_ELSE | {"GANG": 1, "ELSEWHERE": 1}
ORPHANS = LEADERS | {"DELETIONS": 1}
EXECUTIONS = NOTHING_ELSE | {"RUNS": 1}
QUEUE_SETTINGS = {
    "a gang and a change of leader": GANGS,
    "a gang and a later claim at another pool": ELSEWHERE,
    "preemption and a change of leader": LEADERS,
    "preemption beside executions": EXECUTIONS,
    "objects that are deleted": NOTHING_ELSE | {"DELETIONS": 1},
}
QUEUE_MUTANTS = {
    "FREE_EARLY": (NOTHING_ELSE, QUOTA_HOLDS),
    "FREE_WITH_OBJECT": (NOTHING_ELSE | {"DELETIONS": 1}, QUOTA_HOLDS),
    "SKIP_ORPHANS": (ORPHANS, QUOTA_HOLDS),
    "ADMIT_PARTS": (GANGS, NO_PART),
    "ANSWER_PARTS": (GANGS, WHOLE),
    "KEEP_PARTS": (GANGS, NO_PART),
    "PASS_GANG": (ELSEWHERE, NOT_PASSED),
    "KEEP_FOR_EVER": (ELSEWHERE, NOT_FORGOTTEN),
    "PREEMPT_BUSY": (EXECUTIONS, NOT_BUSY_OR_OWN),
    "PREEMPT_BLINDLY": (NOTHING_ELSE, NOT_BUSY_OR_OWN),
    "SUSPEND_UNSAVED": (EXECUTIONS, HAS_ITS_VARIABLES),
}


@dataclass(frozen=True)
class Search:
    said: str
    errors: int
    complete: bool


def search(where: Path, switches: dict[str, int], model: str = "claims.pml") -> Search:
    """All states that the model can be in, up to the first error."""
    for source in HERE.glob("*.pml"):
        shutil.copy(source, where)
    given = [f"-D{name}={value}" for name, value in switches.items()]
    for command in (
        ["spin", "-a", *given, model],
        ["cc", "-Og", "-w", "-DSAFETY", "-DMEMLIM=4000", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=where, check=True, capture_output=True)
    # What is true when nothing moves any more is asserted by the model itself, so blocked processes are no errors (-E).
    said = subprocess.run(["./pan", "-E", "-m100000"], cwd=where, check=True, capture_output=True, text=True).stdout
    errors = int(said.partition("errors: ")[2].split()[0])
    incomplete = ("Search not completed", "max search depth too small", "out of memory", "memory limit")
    return Search(said, errors, not any(sign in said for sign in incomplete))


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_protocol_holds(setting, tmp_path):
    found = search(tmp_path, SETTINGS[setting])
    assert found.errors == 0, found.said
    assert found.complete, found.said


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_one_rule_there_is_a_counterexample(mutant, tmp_path):
    switches, broken = MUTANTS[mutant]
    found = search(tmp_path, {**switches, mutant: 1})
    assert found.errors == 1, found.said
    assert broken in found.said.partition("assertion violated")[2].partition("\n")[0], found.said


@pytest.mark.parametrize("setting", QUEUE_SETTINGS)
def test_quotas_gangs_and_preemption_hold(setting, tmp_path):
    found = search(tmp_path, QUEUE_SETTINGS[setting], "queues.pml")
    assert found.errors == 0, found.said
    assert found.complete, found.said


@pytest.mark.parametrize("mutant", QUEUE_MUTANTS)
def test_without_one_rule_of_queues_there_is_a_counterexample(mutant, tmp_path):
    switches, broken = QUEUE_MUTANTS[mutant]
    found = search(tmp_path, {**switches, mutant: 1}, "queues.pml")
    assert found.errors == 1, found.said
    assert broken in found.said.partition("assertion violated")[2].partition("\n")[0], found.said
