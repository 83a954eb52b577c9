"""Which calls run, and how a developer learns that a policy, a question or a cost has failed."""

import threading
from types import SimpleNamespace

import pytest
from sandfleet import Decision, ToolLimits, tool
from sandfleet.errors import InvalidArgument
from sandfleet.tools import policies
from sandfleet.tools.approval import Approval
from sandfleet.tools.budget import charged
from sandfleet.tools.ledger import Received
from sandfleet.tools.threads import ToolThreads


@tool
def pay(amount: float) -> str:
    """Pay money."""
    return f"paid {amount:g}"


class Trusted:
    """No content of others has come into the session."""

    received = frozenset()

    async def decided(self, tool, decision):
        return decision


@pytest.fixture
def threads():
    made = ToolThreads(2)
    yield made
    made.close()


async def refusal(threads, policy, on_ask=None):
    approval = Approval("sb-1", (policy, on_ask), Trusted(), None, threads)
    call = Received("c1", "pay", b"{}", "e1", "default", "")
    return await approval.refusal(call, pay, {"amount": 5}, {})


def broken(call, session):
    raise LookupError("the table of limits is empty")


@pytest.mark.parametrize("deciders", [(broken, None), (policies.ask("pay"), broken)], ids=["policy", "on_ask"])
async def test_a_decider_that_raises_is_logged_with_its_traceback_and_the_code_learns_only_the_name(
    threads, deciders, caplog
):
    found = await refusal(threads, *deciders)
    assert (found.reason, "table of limits" in found.message) == ("PolicyFailed", False)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("sandfleet", "ERROR")
    assert "pay" in record.getMessage()
    assert "the table of limits is empty" in caplog.text
    assert "in broken" in caplog.text


@pytest.mark.parametrize("deciders", [(lambda call: call, None), (None, lambda: None)], ids=["policy", "on_ask"])
async def test_a_decider_that_cannot_be_called_is_refused_before_any_call(threads, deciders):
    with pytest.raises(InvalidArgument, match="has to take two arguments, call and session"):
        await refusal(threads, *deciders)


@pytest.mark.parametrize("deciders", [(lambda *_: True, None), (policies.ask("pay"), lambda *_: "yes")])
async def test_an_answer_that_is_no_decision_allows_nothing_and_the_log_says_so(threads, deciders, caplog):
    found = await refusal(threads, *deciders)
    assert (found.reason, "has to return a Decision" in caplog.text) == ("PolicyFailed", True)


async def test_a_person_is_asked_in_a_thread_so_that_nothing_else_waits(threads):
    asked = []

    def a_person_says(call, session):
        asked.append((threading.current_thread() is threading.main_thread(), call.arguments, session.sandbox_id))
        return Decision(call.arguments["amount"] < 10)

    async def another(call, session):
        return Decision(allowed=False, why="not today")

    assert await refusal(threads, policies.ask("pay"), a_person_says) is None
    assert asked == [(False, {"amount": 5}, "sb-1")]
    assert (await refusal(threads, policies.ask("pay"), another)).reason == "NotApproved"


def test_a_cost_that_raises_is_logged(caplog):
    def cost(arguments):
        return arguments["none"]

    costly = tool(pay.function, limits=ToolLimits(budget=5), cost=cost)
    assert charged(SimpleNamespace(), costly, {"amount": 1}).reason == "Budget"
    assert "KeyError: 'none'" in caplog.text
