"""Several approvals of one request: the table, and any story of votes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.plan.reviews import votes as module
from sandfleet_operator.plan.reviews.votes import Vote, Votes, digest_of

EDIT = b"print('edited')"


def approves(who, state=0, seen=b""):
    return Vote(who, state, seen_edit=digest_of(seen))


def edits(who, state=0, edit=EDIT):
    return Vote(who, state, edit=edit)


@pytest.mark.parametrize(
    ("cast", "voters", "edit"),
    [
        ([approves("ada")], {"ada"}, b""),
        ([approves("ada"), approves("ada")], {"ada"}, b""),
        ([approves("ada"), approves("bob")], {"ada", "bob"}, b""),
        ([approves("ada"), edits("bob")], {"bob"}, EDIT),
        ([edits("bob"), approves("ada", seen=EDIT)], {"ada", "bob"}, EDIT),
        ([edits("bob"), edits("ada", edit=b"x")], {"ada"}, b"x"),
        ([edits("bob"), edits("bob", edit=b"x")], {"bob"}, b"x"),
    ],
)
def test_votes_are_for_the_same_bytes(cast, voters, edit):
    votes = Votes()
    for vote in cast:
        votes = votes.cast(vote, 0)
    assert (votes.voters, votes.edit) == (voters, edit)


@pytest.mark.parametrize(
    ("before", "vote", "state", "why"),
    [
        ([edits("bob")], approves("ada"), 0, "another reviewer has edited it"),
        ([], approves("ada", seen=EDIT), 0, "another reviewer has edited it"),
        ([edits("bob"), edits("bob", edit=b"x")], approves("ada", seen=EDIT), 0, "another reviewer has edited it"),
        ([], approves("ada", state=1), 2, "has let something run since"),
        ([], edits("ada", state=1), 2, "has let something run since"),
    ],
)
def test_a_vote_for_something_else_than_would_run_is_refused(before, vote, state, why):
    votes = Votes()
    for one in before:
        votes = votes.cast(one, 0)
    with pytest.raises(FleetError, match=why):
        votes.cast(vote, state)


def test_votes_for_an_earlier_state_are_gone():
    votes = Votes().cast(approves("ada"), 0)
    assert votes.cast(approves("bob", state=1), 1).voters == {"bob"}


NAMES = st.sampled_from(["ada", "bob", "eve"])
CAST = st.lists(
    st.tuples(
        NAMES,
        st.integers(0, 2),
        st.sampled_from([b"", EDIT, b"x"]),
        st.sampled_from([b"", EDIT, b"x"]),
        st.integers(0, 2),
    )
)


def story(cast):
    """Plays votes; of each voter what it has last looked at and let run."""
    votes, agreed = Votes(), {}
    for who, seen_state, edit, seen, state in cast:
        try:
            votes = votes.cast(Vote(who, seen_state, edit, digest_of(seen)), state)
        except FleetError:
            continue
        agreed[who] = (edit or seen, seen_state)
    return votes, agreed


@given(CAST)
def test_each_vote_that_counts_is_for_what_would_run_and_has_approved_what_would_run_in_this_state(cast):
    votes, agreed = story(cast)
    for voter in votes.voters:
        assert agreed[voter] == (votes.edit, votes.state)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["an edit keeps votes", "what was seen is not compared"])
def test_the_stories_find_each_mistake(mutant, monkeypatch):
    def careless(self, vote, state):
        if vote.state != state:
            raise module._changed("late")
        mine = self if self.state == state else Votes(state)
        if vote.edit and mutant == "an edit keeps votes":
            return Votes(state, vote.edit, mine.voters | {vote.reviewer})
        if vote.edit:
            return Votes(state, vote.edit, frozenset({vote.reviewer}))
        return Votes(state, mine.edit, mine.voters | {vote.reviewer})

    monkeypatch.setattr(Votes, "cast", careless)
    with pytest.raises(AssertionError):
        test_each_vote_that_counts_is_for_what_would_run_and_has_approved_what_would_run_in_this_state()
