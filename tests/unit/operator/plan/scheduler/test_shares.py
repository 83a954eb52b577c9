"""Start slots are divided between namespaces and pools; each pool has its own start timeout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.values import State
from sandfleet_operator.plan.scheduler.actions import Bind, Stop
from sandfleet_operator.plan.scheduler.starts.shares import StartShares, divided
from support.fleet.builders import NOW, a_claim, a_cluster, a_pool, answers, of_kind, starting, starts

WANTED = st.dictionaries(st.sampled_from([f"team-{n}/{m}" for n in range(4) for m in range(4)]), st.integers(1, 400))


@pytest.mark.parametrize(
    ("total", "wanted", "shares"),
    [
        (10, {"a": 3, "b": 4}, {"a": 3, "b": 4}),
        (10, {"a": 300, "b": 300}, {"a": 5, "b": 5}),
        (10, {"a": 1, "b": 300, "c": 300}, {"a": 1, "b": 4, "c": 5}),
        (2, {"a": 9, "b": 9, "c": 9}, {"a": 1, "b": 1, "c": 1}),
        (7, {"a": 9}, {"a": 7}),
        (7, {}, {}),
    ],
)
def test_a_total_is_divided_fairly(total, wanted, shares):
    assert divided(total, wanted) == shares


@given(total=st.integers(1, 300), wanted=WANTED)
def test_each_pool_gets_its_first_start_and_no_slot_is_left_that_is_wanted(total, wanted):
    shares = StartShares()
    for pool, many in wanted.items():
        shares.want(pool, many)
    found = {pool: shares.share(pool, total) for pool in wanted}
    assert all(1 <= found[pool] <= many for pool, many in wanted.items())
    namespaces = {pool.partition("/")[0] for pool in wanted}
    assert min(total, sum(wanted.values())) <= sum(found.values()) <= max(total, total + len(wanted))
    if total >= len(wanted):
        # No namespace has more than another one that wants more, but for the rest of the division.
        sums = {one: sum(found[pool] for pool in wanted if pool.startswith(f"{one}/")) for one in namespaces}
        unmet = {one for one in namespaces if any(found[p] < wanted[p] for p in wanted if p.startswith(f"{one}/"))}
        assert all(sums[one] >= total // len(namespaces) - 1 for one in unmet)


@given(
    total=st.integers(1, 50), changes=st.lists(st.tuples(st.sampled_from(["a/1", "a/2", "b/1"]), st.integers(0, 90)))
)
def test_shares_follow_what_pools_want_last(total, changes):
    shares, fresh = StartShares(), StartShares()
    for pool, many in changes:
        shares.want(pool, many)
    for pool, many in dict(changes).items():
        fresh.want(pool, many)
    for pool in ("a/1", "a/2", "b/1"):
        assert shares.share(pool, total) == fresh.share(pool, total)


def test_a_pool_whose_sandboxes_never_start_holds_no_other_pools_claim_back():
    stuck, fast = a_pool(name="team/stuck", target_warm=50), a_pool(name="team/fast", target_warm=0)
    scheduler = a_cluster(stuck, fast)
    scheduler.tick(NOW)
    assert starting(scheduler, "team/stuck") == 10
    (uid,) = starts(scheduler.ask(a_claim(pool="team/fast"), NOW))
    (bind,) = of_kind(scheduler.ready(uid, NOW + 1), Bind)
    assert answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW + 1))["r1"].pool == "team/fast"


def test_a_pool_gets_its_share_beside_one_that_holds_all_slots_and_no_more():
    stuck, fast = a_pool(name="team/stuck", target_warm=50), a_pool(name="team/fast", target_warm=50)
    scheduler = a_cluster(stuck)
    scheduler.tick(NOW)
    scheduler.set_pool(fast, NOW)
    assert starting(scheduler, "team/fast") == 5
    for uid in [one.sandbox_uid for one in scheduler.inventory.of_pool("team/stuck", State.STARTING)][:8]:
        scheduler.ready(uid, NOW)
    scheduler.tick(NOW)
    assert (starting(scheduler, "team/stuck"), starting(scheduler, "team/fast")) == (5, 5)


def test_many_pools_of_one_namespace_leave_the_others_their_half():
    greedy = [a_pool(name=f"greedy/{number}", target_warm=50) for number in range(6)]
    scheduler = a_cluster(*greedy, a_pool(name="modest/one", target_warm=50), max_starting=20)
    scheduler.tick(NOW)
    for _ in range(20):
        for state in list(scheduler.inventory.in_state(State.STARTING)):
            scheduler.ready(state.sandbox_uid, NOW)
        counts = {pool.name: starting(scheduler, pool.name) for pool in scheduler.pools}
        if not starting(scheduler, "modest/one"):
            break
        assert counts["modest/one"] == min(10, 50 - scheduler.inventory.count_of("modest/one", State.WARM))
        assert sum(counts.values()) <= 26
    assert scheduler.inventory.count_of("modest/one", State.WARM) == 50


def test_a_closed_pool_leaves_its_slots_to_others():
    scheduler = a_cluster(a_pool(name="team/a", target_warm=50), a_pool(name="team/b", target_warm=50))
    scheduler.tick(NOW)
    assert (starting(scheduler, "team/a"), starting(scheduler, "team/b")) == (10, 5)
    scheduler.set_pool(a_pool(name="team/a", target_warm=50, closed="PolicyMissing"), NOW)
    for one in list(scheduler.inventory.of_pool("team/a", State.STARTING)):
        scheduler.removed(one.sandbox_id, "gone", NOW)
    scheduler.tick(NOW)
    assert (starting(scheduler, "team/a"), starting(scheduler, "team/b")) == (0, 10)
    scheduler.remove_pool("team/b", NOW)
    scheduler.set_pool(a_pool(name="team/a", target_warm=50), NOW)
    assert starting(scheduler, "team/a") == 10


def test_each_pool_has_its_own_start_timeout():
    slow = a_pool(name="team/slow", target_warm=1, start_timeout=600.0)
    scheduler = a_cluster(slow, a_pool(name="team/usual", target_warm=1), start_timeout=120.0)
    scheduler.tick(NOW)
    late = of_kind(scheduler.tick(NOW + 120), Stop)
    assert [one.sandbox.pool for one in late] == ["team/usual"]
    assert of_kind(scheduler.tick(NOW + 599), Stop) == []
    assert "team/slow" in [one.sandbox.pool for one in of_kind(scheduler.tick(NOW + 600), Stop)]


def test_waiting_claims_are_bounded_for_each_namespace():
    scheduler = a_cluster(
        a_pool(name="team/a", target_warm=0),
        a_pool(name="team/b", target_warm=0),
        a_pool(name="other/a", target_warm=0),
        max_waiting_per_namespace=2,
    )
    scheduler.ask(a_claim("r1", pool="team/a"), NOW)
    scheduler.ask(a_claim("r2", pool="team/b"), NOW)
    scheduler.ask(a_claim("r2", pool="team/b"), NOW)
    with pytest.raises(FleetError, match="2 claims are waiting in namespace team") as caught:
        scheduler.ask(a_claim("r3", pool="team/a"), NOW)
    problem = caught.value.problem
    assert (problem.code, problem.reason, problem.subject) == (Code.RESOURCE_EXHAUSTED, "NamespaceQueueFull", "team")
    scheduler.ask(a_claim("r4", pool="other/a"), NOW)
    scheduler.leave(a_claim("r1").key, NOW)
    scheduler.ask(a_claim("r3", pool="team/a"), NOW)


def test_a_few_namespaces_do_not_take_all_places_of_claims_that_wait():
    greedy = [f"mean-{number}/a" for number in range(5)]
    pools = [a_pool(name=name, target_warm=0) for name in (*greedy, "team/a")]
    scheduler = a_cluster(*pools, max_waiting=20, max_waiting_per_namespace=5)
    refused = 0
    for number in range(10):
        for place, pool in enumerate(greedy):
            try:
                scheduler.ask(a_claim(f"r{place}-{number}", pool=pool), NOW)
            except FleetError as error:
                assert error.problem.reason == "NamespaceQueueFull"
                refused += 1
    # Four of them would have filled it.
    assert (len(scheduler.inventory.waiting), refused) == (17, 33)
    scheduler.ask(a_claim("r1", pool="team/a"), NOW)
    # A namespace that is alone has its own bound.
    alone = a_cluster(a_pool(name="team/a", target_warm=0), max_waiting=20, max_waiting_per_namespace=5)
    for number in range(5):
        alone.ask(a_claim(f"r{number}", pool="team/a"), NOW)
