"""The fleet refuses the mounts that an executor would refuse, so that no sandbox is spent on them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.files import mounts as executors
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds import mounts as fleets
from sandfleet_rules import mounts as rules
from support.operator.crd_schemas import SCHEMAS
from support.operator.crd_strategies import meaning, rules_of

SCHEMA = SCHEMAS["CodeSandbox"]["properties"]["spec"]["properties"]["mounts"]


def test_folders_of_the_machine_are_for_one_machine_and_for_data():
    fleets.check({"/data": "/srv/big"}, of_machine=True)
    (mount,) = executors.check({"/data": "/srv/big"})
    assert (mount.source("/w"), mount.target, mount.below) == ("/srv/big", "/data", "/srv/big")
    with pytest.raises(FleetError, match="on one machine alone: on a cluster, copy '/srv/big'"):
        fleets.check({"/data": "/srv/big"})
    for folder in ("/etc", "/run/user", "/var", "/proc/self/root", "/dev/shm"):
        with pytest.raises(BadRequest, match="programs of the machine hold open"):
            executors.check({"/data": folder})
    for folder in ("/", "//srv", "/srv/../etc", "/srv/"):
        with pytest.raises(BadRequest, match="without empty names"):
            executors.check({"/data": folder})


def refusals(mounts):
    """What executor and fleet say; empty for what they take."""
    found = []
    for check, error in ((executors.check, BadRequest), (fleets.check, FleetError)):
        try:
            check(mounts)
        except error as refused:
            found.append(refused.problem.message if isinstance(refused, FleetError) else str(refused))
        else:
            found.append("")
    return found


@pytest.mark.parametrize(
    ("mounts", "why"),
    [
        ({"app": ""}, "cannot mount app: it has to be an absolute path"),
        ({"": ""}, "cannot mount : it has to be an absolute path"),
        ({"/": ""}, "cannot mount /: write it without empty names, '.' and '..'"),
        ({"/app/": ""}, "cannot mount /app/: write it without empty names"),
        ({"//app": ""}, "write it without empty names"),
        ({"/app/../usr": ""}, "write it without empty names"),
        ({"/./app": ""}, "write it without empty names"),
        ({"/app\n": ""}, "a character that cannot be printed"),
        ({"/\0": ""}, "a character that cannot be printed"),
        ({"/\ud800": ""}, "a character that cannot be printed"),
        ({"/" + "ü" * 128: ""}, "a name has over 255 bytes"),
        ({"/" + "x/" * 300 + "x": ""}, "it has to be shorter than 512 characters"),
        *(({path: ""}, f"cannot mount {path}: {path} belongs to the system") for path in rules.SYSTEM),
        ({"/usr/local/lib": ""}, "cannot mount /usr/local/lib: /usr belongs to the system"),
        ({"/workspace/app": ""}, "/workspace belongs to the system"),
        ({"/tmp/x": ""}, "/tmp belongs to the system"),
        ({"/proc/self/root": ""}, "/proc belongs to the system"),
        ({"/opt": ""}, "cannot mount /opt: /opt/sandfleet belongs to the executor"),
        ({"/opt/sandfleet/x": ""}, "/opt/sandfleet belongs to the executor"),
        ({"/app": "../x"}, "cannot mount /app: folder '../x': write it without empty names"),
        ({"/app": "a//b"}, "folder 'a//b': write it without empty names"),
        ({"/app": "./x"}, "folder './x': write it without empty names"),
        ({"/app": "x" * 256}, "a name has over 255 bytes"),
        ({"/a": "", "/a/b": ""}, "cannot mount /a/b: it lies in /a, which is mounted as well"),
        ({"/a/b/c": "", "/a-b": "", "/a": ""}, "cannot mount /a/b/c: it lies in /a"),
        ({f"/{number}": "" for number in range(17)}, "cannot mount 17 folders: the most are 16"),
        ({f"/{number}{'x' * 250}": "y" * 100 for number in range(12)}, "longer than 4096 bytes together"),
    ],
)
def test_what_cannot_be_mounted_is_refused_by_both_in_the_same_words(mounts, why):
    by_executor, by_fleet = refusals(mounts)
    assert why in by_executor
    assert by_executor == by_fleet


@pytest.mark.parametrize(
    "mounts",
    [
        {},
        {"/app": "", "/logs": "out/logs", "/home/user": ".", "/var/log": "app", "/root": "...", "/opt/data": "a b"},
        {"/sandfleet": "", "/opt/sandfleet2": "", "/usrs": "", "/Usr": "", "/лог": "ü"},
        {f"/{number}": "" for number in range(16)},
    ],
)
def test_other_paths_are_taken_by_both(mounts):
    assert refusals(mounts) == ["", ""]


PATHS = st.lists(
    st.sampled_from(["", "a", "b", "..", ".", "usr", "opt", "sandfleet", "tmp", "\n", "\ud800", "x" * 256, "é"]),
    max_size=4,
).map("/".join)


def fits_schema(mounts):
    return _refusals(SCHEMA, fleets.listing(mounts)) == [] and len(mounts) <= SCHEMA["maxItems"]


def _refusals(schema, listed):
    fields = [(schema["items"]["properties"][name], value) for one in listed for name, value in one.items()]
    return [
        (value, one)
        for field, value in fields
        for one in (*rules_of(field), field["maxLength"])
        if (len(value) > one if isinstance(one, int) else not meaning(one)(value))
    ]


@given(st.dictionaries(PATHS | PATHS.map("/{}".format), PATHS, max_size=3))
@example({"/" + "a/" * 255 + "a": "b/" * 255 + "b"})
def test_both_decide_alike_and_the_schema_takes_what_they_take(mounts):
    by_executor, by_fleet = refusals(mounts)
    if any(folder.startswith("/") for folder in mounts.values()):
        # Of the machine: none of a cluster takes it.
        assert by_fleet
        return
    assert by_executor == by_fleet
    if not by_fleet:
        assert fits_schema(mounts)
        assert fleets.read(fleets.listing(mounts), "spec.mounts") == mounts
