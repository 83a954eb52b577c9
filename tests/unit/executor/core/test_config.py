"""What an executor may be told, and its limits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.core.limits import MAX_OUTPUT_BYTES, MIB, OWN_TASKS, Limits

NEEDED = {
    "sandbox_id": "s",
    "sandbox_uid": "u",
    "workspace": "/w",
    "private_dir": "/p",
    "keys_file": "/k.json",
}
LOCAL = {**NEEDED, "socket": "/x.sock"}


def test_the_required_keys_are_enough_and_the_others_have_defaults():
    config = ExecutorConfig.parse(LOCAL)
    assert (config.isolation, config.user_id, config.lease, config.limits) == ("namespace", None, None, Limits())


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [None, "", 3, ["x"]])
def test_a_required_key_has_to_be_a_text(name, value):
    with pytest.raises(ConfigError, match=f"{name} has to be a text"):
        ExecutorConfig.parse({**LOCAL, name: value})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"colour": 1, "size": 2}, "unknown colour, size"),
        ({"limits": {"memory": 1}}, "unknown limits memory"),
        ({"limits": [1]}, "limits is no object"),
        ({"limits": {"memory_bytes": 0}}, "memory_bytes=0: it has to be a number above 0"),
        ({"limits": {"processes": -1}}, "processes=-1"),
        ({"limits": {"executions": True}}, "executions=True"),
        ({"limits": {"open_files": 63}}, "open_files=63: the least is 64"),
        ({"limits": {"disk_bytes": 1 << 51}}, "disk_bytes"),
        ({"limits": {"max_timeout": "5"}}, "max_timeout='5'"),
        ({"limits": {"output_bytes": MAX_OUTPUT_BYTES + 1}}, "output_bytes"),
        ({"socket": "x.sock"}, "socket='x.sock': it has to be an absolute path"),
        ({"socket": 3}, "socket=3: it has to be an absolute path"),
        ({"socket": None}, "give either socket or listen"),
        ({"listen": "0.0.0.0:1"}, "give either socket or listen"),
        # Each key that an account of the namespace adds to the file would count.
        ({"socket": None, "listen": "0.0.0.0:1"}, "keys_authority does not say who signs"),
        ({"socket": None, "listen": "0.0.0.0:1", "keys_authority": ""}, "keys_authority does not say who signs"),
        ({"network": "all"}, "network='all': it is one of none, pod"),
        ({"workspace": "w"}, "workspace"),
        ({"private_dir": "../p"}, "private_dir"),
        ({"keys_file": "k"}, "keys_file"),
        ({"isolation": "jail"}, "isolation='jail': it is one of namespace, none"),
        ({"user_id": 0}, "user code never runs as root"),
        ({"user_id": -1}, "user_id=-1"),
        ({"mounts": ["/app"]}, "mounts is no object"),
        ({"mounts": {"/app": 3}}, "mounts are paths with folders"),
        ({"mounts": {"/etc": ""}}, "cannot mount /etc: /etc belongs to the system"),
        ({"mounts": {"/app": ""}, "isolation": "none"}, "without a session namespace"),
    ],
)
def test_an_invalid_configuration_is_refused_with_a_reason(change, why):
    with pytest.raises(ConfigError, match=r"^cannot ") as refused:
        ExecutorConfig.parse({**LOCAL, **change})
    assert why in str(refused.value)


def test_an_executor_on_a_network_starts_where_its_manifest_says_who_signs_its_keys():
    served = {**NEEDED, "listen": "0.0.0.0:1"}
    assert ExecutorConfig.parse({**served, "keys_authority": "a-key"}).keys_authority == "a-key"
    # Control: on one machine the file is the fleet's own, and nothing signs it.
    assert ExecutorConfig.parse(LOCAL).keys_authority is None


def test_limits_can_be_lowered():
    lowered = Limits().lowered({"memory_bytes": 1 << 20, "processes": 5})
    assert (lowered.memory_bytes, lowered.processes, lowered.executions) == (1 << 20, 5, Limits().executions)


@pytest.mark.parametrize(
    "name",
    [
        "memory_bytes",
        "tmp_bytes",
        "processes",
        "output_bytes",
        "executions",
        "max_timeout",
        "default_timeout",
        "open_files",
        "disk_bytes",
    ],
)
def test_no_limit_can_be_raised(name):
    limits = Limits()
    assert limits.lowered({name: getattr(limits, name)}) == limits
    with pytest.raises(ConfigError, match=f"cannot raise limit {name}"):
        limits.lowered({name: getattr(limits, name) + 1})


def test_zero_means_as_the_template_says():
    assert Limits().lowered({"memory_bytes": 0, "max_timeout": 0}) == Limits()


def test_the_default_deadline_is_never_above_the_largest():
    assert Limits().lowered({"max_timeout": 10.0}).default_timeout == 10.0


@given(memory=st.integers(1, 1 << 40), tmp=st.integers(1, 1 << 40))
def test_files_in_memory_leave_half_of_it_free(memory, tmp):
    limits = Limits(memory_bytes=memory, tmp_bytes=tmp)
    assert 2 * limits.tmpfs_bytes <= memory / 2
    assert limits.tmpfs_bytes in (tmp, memory // 4)


@pytest.mark.parametrize(
    ("memory", "asked", "fit"),
    [
        (2048 * MIB, 256, 102),  # the default: 256 forks of a context would need 5 GiB
        (8192 * MIB, 256, 256),
        (2048 * MIB, 64, 64),
        (256 * MIB, 256, 32),  # the least that every sandbox has
        (256 * MIB, 8, 8),
    ],
)
def test_under_gvisor_there_are_no_more_processes_than_the_memory_has_room_for(memory, asked, fit):
    limits = Limits(memory_bytes=memory, processes=asked)
    assert limits.fitting_gvisor() == replace(limits, processes=fit)


def test_under_gvisor_the_executors_own_tasks_take_nothing_from_user_code():
    limits = Limits(processes=40)
    assert limits.rlimits["RLIMIT_NPROC"] == 40
    assert limits.gvisor_rlimits == limits.rlimits | {"RLIMIT_NPROC": 40 + OWN_TASKS}
