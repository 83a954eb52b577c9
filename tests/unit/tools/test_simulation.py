"""The simulation of a fleet: loads are drawn, played to the real scheduler, measured and fitted."""

import json
import math
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.plan.scheduler.queues.fair_queue import FAIR
from simulate import main, shipped, text_of
from simulation.fit import fit, smallest
from simulation.load import read_load, sessions
from simulation.measures import jain, max_min, measure, quantile
from simulation.policies import FIRST_COME_FIRST_SERVED
from simulation.replay import replay
from support.examples import examples

TEAMS = """
fleet: {sandboxes: 10, warm: 4, starting: 4, startSeconds: 2}
hours: 0.2
queues:
  flood: {nominalQuota: {sandboxes: 5}}
  calm: {nominalQuota: {sandboxes: 5}}
teams:
  - {name: flood, queue: flood, session: {steps: 2, runSeconds: 5, thinkSeconds: 5}, arrivals: [{at: 10, claims: 200}]}
  - {name: calm, queue: calm, session: {steps: 2, runSeconds: 1, thinkSeconds: 1}, arrivals: [{perHour: 300}]}
"""


def a_load(**changes):
    return replace(read_load(yaml.safe_load(TEAMS)), **changes)


def played(load=None, policy=FAIR):
    load = load or a_load()
    return replay(load, sessions(load), policy)


@pytest.mark.parametrize("name", shipped())
def test_each_shipped_load_is_readable_and_draws_claims_of_each_team(name):
    load = read_load(yaml.safe_load(text_of(name)))
    assert {one.team for one in sessions(load)} == {team.name for team in load.teams}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"teams": [{"name": "a", "queue": "b"}]}, "there is no queue 'b'"),
        ({"teams": [{"name": "a"}, {"name": "a"}]}, "two teams have one name"),
        ({"hours": 0}, "at least one sandbox, one start at a time and some time"),
        ({"fleet": {"sandboxes": 0}}, "at least one sandbox"),
        ({"teams": [{"name": "a", "arrivals": [{"claims": 3_000_000}]}]}, "3000000 claims are more than 2000000"),
        ({"teams": [{"name": "a", "arrivals": [{"perHour": "many"}]}]}, "perHour"),
        ({"teams": [{"name": "a", "arrivals": [{"perHour": 1, "shape": "wavy"}]}]}, "shape"),
        ({"queues": {"q": {"nominalQuota": {"sandboxes": -1.5}}}}, "queues.q.nominalQuota.sandboxes"),
        ({"fleet": None}, "fleet"),
    ],
)
def test_an_unusable_load_is_refused_with_its_reason(change, why):
    with pytest.raises(FleetError, match=why):
        read_load({**yaml.safe_load(TEAMS), **change})


def test_the_sessions_of_a_team_depend_on_the_seed_and_not_on_other_teams():
    load = a_load()
    assert sessions(load) == sessions(load) != sessions(replace(load, seed=2))
    alone = sessions(replace(load, teams=load.teams[1:]))
    assert alone == [one for one in sessions(load) if one.team == "calm"]


def test_the_drawn_rate_is_that_of_the_load():
    load = a_load(hours=10.0)
    calm = sum(one.team == "calm" for one in sessions(load))
    assert abs(calm - 3000) < 5 * math.sqrt(3000)


@pytest.mark.parametrize("policy", [FAIR, FIRST_COME_FIRST_SERVED])
def test_no_claim_is_lost_and_no_quota_is_exceeded(policy):
    load = a_load()
    drawn, one = sessions(load), played(load, policy)
    for name, record in one.teams.items():
        found = measure(one).teams[name]
        assert found.claims == found.served + found.still_waiting == sum(session.team == name for session in drawn)
        # What is released keeps its quota until its executor has ended, and so the next claim waits for that.
        assert max(held for _, held in record.held) <= 5
    assert one.peak <= 10


def test_the_same_load_twice_is_the_same():
    assert measure(played()) == measure(played())


def test_a_flood_delays_the_other_team_by_far_less_in_fair_turns_than_first_come_first_served():
    # Without quotas: what protects the other team are the turns.
    free = {
        name: replace(spec, nominal=replace(spec.nominal, sandboxes=None)) for name, spec in a_load().queues.items()
    }
    load = a_load(queues=free)
    fair, first_come = measure(played(load)), measure(played(load, FIRST_COME_FIRST_SERVED))
    assert fair.teams["calm"].p99 < first_come.teams["calm"].p99 / 5
    assert fair.jain > 0.9 > first_come.jain


SHARES = st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1)


@settings(max_examples=examples(200))
@given(SHARES, st.integers(0, 100))
def test_max_min_shares_are_within_demand_use_all_capacity_and_favour_the_smallest(teams, capacity):
    demands = {name: float(demand) for name, (demand, _) in teams.items()}
    weights = {name: float(weight) for name, (_, weight) in teams.items()}
    shares = max_min(capacity, demands, weights)
    assert sum(shares.values()) == pytest.approx(min(capacity, sum(demands.values())))
    for name, share in shares.items():
        assert share <= demands[name] + 1e-9
        if share < demands[name] - 1e-9:
            # A team that wants more has at least as much for its weight as any other.
            assert all(share / weights[name] >= other / weights[one] - 1e-9 for one, other in shares.items())


def test_jains_index_is_1_for_equal_shares_and_1_over_n_for_one_that_has_all():
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([]) == jain([0, 0]) == 1


def test_quantiles_are_of_the_nearest_rank():
    assert [quantile([1, 2, 3, 4], part) for part in (0.25, 0.5, 0.99, 1)] == [1, 2, 4, 4]
    assert quantile([], 0.5) is None


@given(st.integers(0, 500), st.integers(0, 500))
def test_smallest_finds_the_first_number_that_holds(first, most):
    assert smallest(0, most, lambda many: many >= first) == (first if first <= most else None)


def test_a_fit_keeps_the_bound_and_one_sandbox_less_does_not():
    load = a_load()
    calm = replace(load, teams=load.teams[1:], queues={"calm": load.queues["calm"]})
    found = fit(calm, sessions(calm), FAIR, 5.0)
    assert 0 <= found.warm <= found.sandboxes <= 10
    assert found.quotas["calm"] <= found.sandboxes

    def p99(sandboxes):
        spec = replace(calm.queues["calm"], nominal=replace(calm.queues["calm"].nominal, sandboxes=None))
        size = replace(calm.fleet, sandboxes=sandboxes, warm=sandboxes)
        return measure(played(replace(calm, fleet=size, queues={"calm": spec}))).teams["calm"].p99

    assert p99(found.sandboxes) <= 5.0 < p99(found.sandboxes - 1)


@pytest.mark.slow
def test_a_comparison_is_a_table_or_json_and_the_same_picture_each_time(tmp_path, capsys):
    load = tmp_path / "load.yaml"
    load.write_text(TEAMS)
    pictures = []
    for name in ("a.svg", "b.svg"):
        assert main([str(load), "--draw", str(tmp_path / name)]) == 0
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert capsys.readouterr().out.count("calm") == 6
    assert main([str(load), "--json", "--policy", "fifo"]) == 0
    assert set(json.loads(capsys.readouterr().out)["fifo"]["teams"]) == {"flood", "calm"}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["/nowhere.yaml"], "cannot read /nowhere.yaml: No such file or directory\n"),
        (["/dev/null"], "/dev/null: cannot read load"),
        (["{load}", "--draw", "/nowhere/a.svg"], "cannot draw"),
        (["{load}", "--draw", "a.txt"], "cannot draw"),
        # Neither has an end: no fleet is large enough.
        (["{load}", "--fit=-1"], "cannot fit: -1 is no number of seconds"),
        (["{load}", "--fit=nan"], "cannot fit: nan is no number of seconds"),
    ],
)
def test_what_cannot_be_read_or_drawn_is_said_and_exits_with_2(asked, why, tmp_path, capsys):
    load = tmp_path / "load.yaml"
    load.write_text(TEAMS)
    words = [word.format(load=load) for word in asked]
    assert main([*words, "--policy", "fair"]) == 2
    assert why in capsys.readouterr().err
