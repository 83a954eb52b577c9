"""One service: every event in every state. All services: which starts or stops next, and what a new set changes."""

import itertools
from dataclasses import replace

import pytest
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.services import machine, plan
from sandfleet_executor.core.services.machine import ALIVE, RESTING, Action, Exit, ServiceRuntime, State
from sandfleet_executor.core.services.plan import Service, Step, TakenError, TooManyError
from sandfleet_executor.core.services.spec import (
    CycleError,
    Exec,
    Http,
    Probe,
    Restart,
    ServiceSpec,
    Tcp,
    UnknownServiceError,
)
from sandfleet_rules.backoff import Backoff

NOW = 1000.0
PROBE = Probe(Tcp(80), failures=2)
SPEC = ServiceSpec("web", b"x", shell=True, readiness=PROBE, liveness=PROBE, grace=5.0)
GOOD, BAD = Exit(0, "Completed", "well"), Exit(1, "ExitCode", "badly")
W, S, R, OK, STP, AGN, FLG, BO, C, F, X = State
N, L, T, K = Action.NONE, Action.LAUNCH, Action.TERMINATE, Action.KILL

EVENTS = {
    "want_running": machine.want_running,
    "want_stopped": machine.want_stopped,
    "restart": lambda runtime: machine.restart(runtime, SPEC, NOW),
    "start": machine.start,
    "stop": lambda runtime: machine.stop(runtime, SPEC, NOW),
    "launched": lambda runtime: machine.launched(runtime, SPEC, 7, NOW),
    "ended": lambda runtime: machine.ended(runtime, SPEC, BAD, NOW),
    "due": machine.due,
    "ready": lambda runtime: machine.readiness_checked(runtime, SPEC, ""),
    "not_ready": lambda runtime: machine.readiness_checked(runtime, SPEC, "no"),
    "live": lambda runtime: machine.liveness_checked(runtime, SPEC, "", NOW),
    "not_live": lambda runtime: machine.liveness_checked(runtime, SPEC, "no", NOW),
}
# In the order of State, what follows on each event.
TABLE = {
    #             WAITING  STARTING  RUNNING   READY     STOPPING RESTARTING FAILING  BACK_OFF COMPLETED FAILED  STOPPED
    "want_running": [(W, N), (S, N),   (R, N),   (OK, N),  (AGN, N), (AGN, N),  (FLG, N), (BO, N), (W, N),  (W, N),  (W, N)],
    "want_stopped": [(X, N), (S, N),   (R, N),   (OK, N),  (STP, N), (AGN, N),  (FLG, N), (X, N),  (X, N),  (X, N),  (X, N)],
    "restart":      [(W, N), (AGN, N), (AGN, T), (AGN, T), (AGN, N), (AGN, N),  (AGN, N), (W, N),  (W, N),  (W, N),  (W, N)],
    "start":        [(S, L), (S, N),   (R, N),   (OK, N),  (STP, N), (AGN, N),  (FLG, N), (BO, N), (C, N),  (F, N),  (X, N)],
    "stop":         [(W, N), (STP, N), (STP, T), (STP, T), (STP, N), (STP, N),  (STP, N), (BO, N), (C, N),  (F, N),  (X, N)],
    "launched":     [(W, N), (R, N),   (R, N),   (OK, N),  (STP, T), (AGN, T),  (FLG, T), (BO, N), (C, N),  (F, N),  (X, N)],
    "ended":        [(W, N), (BO, N),  (BO, N),  (BO, N),  (X, N),   (W, N),    (BO, N),  (BO, N), (C, N),  (F, N),  (X, N)],
    "due":          [(W, N), (S, N),   (R, N),   (OK, N),  (STP, K), (AGN, K),  (FLG, K), (W, N),  (C, N),  (F, N),  (X, N)],
    "ready":        [(W, N), (S, N),   (OK, N),  (OK, N),  (STP, N), (AGN, N),  (FLG, N), (BO, N), (C, N),  (F, N),  (X, N)],
    "not_ready":    [(W, N), (S, N),   (R, N),   (R, N),   (STP, N), (AGN, N),  (FLG, N), (BO, N), (C, N),  (F, N),  (X, N)],
    "live":         [(W, N), (S, N),   (R, N),   (OK, N),  (STP, N), (AGN, N),  (FLG, N), (BO, N), (C, N),  (F, N),  (X, N)],
    "not_live":     [(W, N), (S, N),   (FLG, T), (FLG, T), (STP, N), (AGN, N),  (FLG, N), (BO, N), (C, N),  (F, N),  (X, N)],
}  # fmt: skip


def life_in(state):
    """As it comes there: what goes down is to be killed some time, and the next miss is one too many."""
    due = NOW if state in {*machine.GOING_DOWN, State.BACK_OFF} else None
    return ServiceRuntime(state, wanted=state not in {State.STOPPING, State.STOPPED}, due=due, missed=1, live_missed=1)


@pytest.mark.parametrize(("event", "state"), list(itertools.product(EVENTS, State)))
def test_every_event_in_every_state_leads_where_the_table_says(event, state):
    expected = TABLE[event][list(State).index(state)]
    runtime, action = EVENTS[event](life_in(state))
    assert (runtime.state, action) == expected


def test_the_table_has_a_row_for_each_event_and_a_place_for_each_state():
    assert TABLE.keys() == EVENTS.keys()
    assert {len(row) for row in TABLE.values()} == {len(State)}


@pytest.mark.parametrize(("event", "state"), list(itertools.product(EVENTS, State)))
def test_only_pausing_or_stopping_states_have_a_deadline(event, state):
    runtime, action = EVENTS[event](life_in(state))
    if runtime.due is not None:
        assert runtime.state in {*machine.GOING_DOWN, State.BACK_OFF}
    if action is Action.TERMINATE:
        assert runtime.due == NOW + SPEC.grace


@pytest.mark.parametrize("state", State)
def test_an_unwanted_service_stays_stopped_after_any_end(state):
    runtime, _ = machine.ended(replace(life_in(state), wanted=False), SPEC, BAD, NOW)
    assert runtime.state is (State.STOPPED if state in ALIVE else state)


@pytest.mark.parametrize(
    ("policy", "how", "state", "reason"),
    [
        (Restart.ALWAYS, GOOD, State.BACK_OFF, "Completed"),
        (Restart.ALWAYS, BAD, State.BACK_OFF, "ExitCode"),
        (Restart.ON_FAILURE, GOOD, State.COMPLETED, "Completed"),
        (Restart.ON_FAILURE, BAD, State.BACK_OFF, "ExitCode"),
        (Restart.ON_FAILURE, Exit(137, "MemoryLimit", "m"), State.BACK_OFF, "MemoryLimit"),
        (Restart.ON_FAILURE, Exit(0, "SessionUnavailable", "m"), State.BACK_OFF, "SessionUnavailable"),
        (Restart.NEVER, GOOD, State.COMPLETED, "Completed"),
        (Restart.NEVER, BAD, State.FAILED, "ExitCode"),
    ],
)
def test_the_restart_policy_decides_what_follows_an_end(policy, how, state, reason):
    runtime, _ = machine.ended(ServiceRuntime(State.READY), replace(SPEC, restart=policy), how, NOW)
    assert (runtime.state, runtime.reason, runtime.last) == (state, reason, how)


def crashes(spec, times, *, ready_for=None):
    """The lives after each of so many ends."""
    runtime = ServiceRuntime()
    for number in range(times):
        if runtime.state is State.BACK_OFF:
            runtime, _ = machine.due(runtime)
        runtime, _ = machine.start(runtime)
        runtime, _ = machine.launched(runtime, spec, 7, NOW)
        if ready_for is not None:
            runtime, _ = machine.readiness_checked(runtime, spec, "")
        runtime, _ = machine.ended(runtime, spec, BAD, NOW + (ready_for or 0))
        yield number + 1, runtime


def test_pauses_double_up_to_their_cap_and_then_the_service_fails():
    spec = replace(SPEC, backoff=1.0, backoff_cap=5.0, max_failures=5)
    found = [(runtime.state, runtime.due and runtime.due - NOW) for _, runtime in crashes(spec, 5)]
    assert found == [(BO, 1.0), (BO, 2.0), (BO, 4.0), (BO, 5.0), (F, None)]
    *_, (_, last) = crashes(spec, 5)
    assert (last.reason, last.restarts) == ("CrashLoop", 4)
    assert "5 times in a row" in last.message


def test_a_long_successful_run_resets_the_count_of_failures():
    spec = replace(SPEC, max_failures=3)
    assert {runtime.state for _, runtime in crashes(spec, 20, ready_for=machine.STABLE_SECONDS)} == {BO}
    *_, (_, last) = crashes(spec, 3, ready_for=machine.STABLE_SECONDS - 1)
    assert last.state is F


def test_a_thousand_failures_do_not_overflow():
    assert Backoff(SPEC.backoff, SPEC.backoff_cap).after(1000) == SPEC.backoff_cap


def test_readiness_is_lost_after_the_declared_failures():
    runtime, _ = machine.readiness_checked(ServiceRuntime(State.READY), SPEC, "no")
    assert runtime.state is OK
    runtime, _ = machine.readiness_checked(runtime, SPEC, "")
    runtime, _ = machine.readiness_checked(runtime, SPEC, "no")
    assert runtime.state is OK
    runtime, _ = machine.readiness_checked(runtime, SPEC, "port 80 is shut")
    assert (runtime.state, runtime.reason, runtime.message) == (R, "NotReady", "port 80 is shut")


def test_readiness_takes_the_declared_successes_in_a_row():
    spec = replace(SPEC, readiness=replace(PROBE, successes=2))
    runtime, _ = machine.readiness_checked(ServiceRuntime(State.RUNNING), spec, "")
    runtime, _ = machine.readiness_checked(runtime, spec, "no")
    runtime, _ = machine.readiness_checked(runtime, spec, "")
    assert runtime.state is R
    assert machine.readiness_checked(runtime, spec, "")[0].state is OK


def test_a_service_without_readiness_is_ready_when_it_has_run_for_a_moment():
    unprobed = replace(SPEC, readiness=None, restart=Restart.NEVER)
    runtime, _ = machine.launched(ServiceRuntime(State.STARTING), unprobed, 7, NOW)
    assert (runtime.state, runtime.due, runtime.was_ready) == (R, NOW + machine.SETTLED_SECONDS, False)
    later, _ = machine.due(runtime)
    assert (later.state, later.due, later.reason, later.was_ready) == (OK, None, "", True)
    # As `nosuchcmd` does.
    gone, _ = machine.ended(runtime, unprobed, Exit(127, "ExitCode", "badly"), NOW + 0.01)
    assert (gone.state, gone.due, gone.was_ready) == (F, None, False)
    stopping, action = machine.stop(runtime, unprobed, NOW)
    assert (stopping.state, stopping.due, action) == (STP, NOW + unprobed.grace, T)


# All of them


def spec(name, *after, **rest):
    return ServiceSpec(name, rest.pop("payload", b"x"), shell=True, after=after, **rest)


def world(*specs):
    return plan.declare({}, specs, keep_others=False, now=NOW).services


def settle(services):
    """Carries out everything that can be done, as if programs started, settled and ended at once; returns the order."""
    said = []
    services = dict(services)
    while todo := plan.steps(services):
        for name, step in todo:
            said.append((name, step))
            one = services[name]
            match step:
                case Step.START:
                    runtime = machine.due(machine.launched(machine.start(one.runtime)[0], one.spec, 7, NOW)[0])[0]
                case Step.STOP:
                    runtime = machine.ended(machine.stop(one.runtime, one.spec, NOW)[0], one.spec, GOOD, NOW)[0]
                case Step.FORGET:
                    del services[name]
                    continue
            services[name] = replace(one, runtime=runtime)
    return services, said


def wishing(services, event, names=None):
    return {
        name: replace(one, runtime=event(one.runtime)[0]) if names is None or name in names else one
        for name, one in services.items()
    }


CHAIN = (spec("front", "app"), spec("app", "db", "cache"), spec("cache"), spec("db"))


def test_services_start_after_their_dependencies_and_stop_before_them():
    services, said = settle(world(*CHAIN))
    assert [name for name, _ in said] == ["cache", "db", "app", "front"]
    services, said = settle(wishing(services, machine.want_stopped))
    assert [name for name, step in said if step is Step.STOP] == ["front", "app", "cache", "db"]
    assert {one.runtime.state for one in services.values()} == {X}


def test_an_unready_service_holds_back_its_dependents():
    services, _ = settle(world(spec("db", readiness=PROBE), spec("app", "db")))
    assert services["app"].runtime.state is W
    assert plan.why_not(services, "app") == "it waits for db (running)"
    services = wishing(services, lambda runtime: machine.readiness_checked(runtime, services["db"].spec, ""), {"db"})
    assert settle(services)[0]["app"].runtime.state is OK


def test_a_completed_service_satisfies_its_dependents():
    services = world(spec("setup", readiness=PROBE), spec("app", "setup"))
    done = Service(spec("setup"), ServiceRuntime(State.COMPLETED))
    assert settle(services | {"setup": done})[0]["app"].runtime.state is OK


@pytest.mark.parametrize("state", sorted(RESTING - {State.COMPLETED}))
def test_a_failed_dependency_fails_indirect_dependents(state):
    services = world(spec("db"), spec("app", "db"), spec("front", "app"), spec("other"))
    services = services | {"db": replace(services["db"], runtime=ServiceRuntime(state))}
    assert plan.hopeless(services) == {"db", "app", "front"}


def test_impossible_dependencies_are_found_at_once():
    names = [f"s{number}" for number in range(64)]
    services = world(*(spec(name, *names[:number]) for number, name in enumerate(names)))
    services = services | {"s0": replace(services["s0"], runtime=ServiceRuntime(State.FAILED))}
    assert plan.hopeless(services) == set(names)


def test_the_same_set_twice_changes_nothing():
    services, _ = settle(world(*CHAIN))
    change = plan.declare(services, CHAIN, keep_others=False, now=NOW)
    assert change.services == services
    assert set(change.unchanged) == set(services)
    assert (change.started, change.restarted, change.stopped, dict.fromkeys(change.actions.values())) == (
        (),
        (),
        (),
        {N: None},
    )


def test_a_new_set_starts_new_restarts_changed_and_stops_removed_services():
    services, _ = settle(world(spec("same"), spec("changed"), spec("gone")))
    wanted = [spec("same"), spec("changed", payload=b"y"), spec("new")]
    change = plan.declare(services, wanted, keep_others=False, now=NOW)
    assert (change.started, change.restarted, change.stopped, change.unchanged) == (
        ("new",),
        ("changed",),
        ("gone",),
        ("same",),
    )
    assert change.actions == {"same": N, "changed": T}
    after, _ = settle(change.services)
    assert sorted(after) == ["changed", "new", "same"]


def test_other_services_stay_when_asked():
    services, _ = settle(world(spec("a")))
    change = plan.declare(services, [spec("b", "a")], keep_others=True, now=NOW)
    assert (list(change.services), change.stopped) == (["a", "b"], ())


def test_a_stopping_service_that_is_declared_again_comes_back():
    services, _ = settle(world(spec("a")))
    going = plan.declare(services, [], keep_others=False, now=NOW).services
    going = wishing(going, lambda runtime: machine.stop(runtime, SPEC, NOW))
    assert going["a"].runtime.state is STP
    back = plan.declare(going, [spec("a")], keep_others=False, now=NOW)
    assert (back.services["a"].runtime.state, back.services["a"].removed, back.started) == (AGN, False, ("a",))


def test_the_templates_services_stay_and_their_names_are_taken():
    services = {"db": Service(spec("db"), from_template=True)}
    change = plan.declare(services, [spec("app", "db")], keep_others=False, now=NOW)
    assert list(change.services) == ["db", "app"]
    with pytest.raises(TakenError, match="template"):
        plan.declare(services, [spec("db")], keep_others=True, now=NOW)


@pytest.mark.parametrize(
    ("specs", "error", "said"),
    [
        ([spec("a", "b"), spec("b", "a")], CycleError, "a → b → a"),
        ([spec("x"), spec("a", "x", "b"), spec("b", "c"), spec("c", "a")], CycleError, "a → b → c → a"),
        ([spec("a", "a")], CycleError, "a → a"),
        ([spec("a", "unknown")], UnknownServiceError, "after unknown"),
        ([spec("a"), spec("a")], BadRequest, "twice"),
        ([spec(f"s{number}") for number in range(65)], TooManyError, "the most is 64"),
        ([spec(f"s{number}", payload=b"x" * (1 << 20)) for number in range(9)], BadRequest, "larger than"),
    ],
)
def test_an_impossible_set_is_refused_with_a_reason(specs, error, said):
    services, _ = settle(world(spec("here")))
    with pytest.raises(error, match=said):
        plan.declare(services, specs, keep_others=True, now=NOW)


@pytest.mark.parametrize(
    "make",
    [
        lambda: spec(""),
        lambda: spec(".hidden"),
        lambda: spec("a/b"),
        lambda: spec("x" * 65),
        lambda: spec("a", backoff=0.01),
        lambda: spec("a", backoff=float("nan")),
        lambda: spec("a", backoff=10, backoff_cap=5),
        lambda: spec("a", grace=-1),
        lambda: spec("a", grace=float("inf")),
        lambda: spec("a", stop_signal=9),
        lambda: spec("a", stop_signal=99),
        lambda: spec("a", max_failures=0),
        lambda: Probe(Tcp(0)),
        lambda: Probe(Tcp(65536)),
        lambda: Probe(Http(80, "no slash")),
        lambda: Probe(Http(80, "/a\r\nX: y")),
        lambda: Probe(Http(80, "/", 42)),
        lambda: Probe(Tcp(80), interval=0.001),
        lambda: Probe(Tcp(80), timeout=0),
        lambda: Probe(Exec(b"x", shell=True), failures=0),
    ],
)
def test_an_invalid_declaration_is_refused(make):
    with pytest.raises(BadRequest, match="cannot"):
        make()
