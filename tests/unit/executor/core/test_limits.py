"""The table of limits, and what is made from it."""

import resource

import pytest
from sandfleet_api.executor.v1 import common_pb2 as pb
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.core.limits import BOUNDS, SECONDS, Limits
from sandfleet_executor.servicers.convert import common as convert

DEFAULT = Limits()


def test_the_api_has_a_field_for_each_limit_and_no_other():
    assert {field.name for field in pb.Limits.DESCRIPTOR.fields} == set(BOUNDS)


@pytest.mark.parametrize("name", [name for name, bound in BOUNDS.items() if bound.least is not None])
def test_a_limit_is_not_below_its_least(name):
    assert getattr(Limits(**{name: BOUNDS[name].least}), name) == BOUNDS[name].least
    with pytest.raises(ConfigError, match=f"cannot take limit {name}=.*: the least is {BOUNDS[name].least}"):
        Limits(**{name: BOUNDS[name].least * 0.9})


@pytest.mark.parametrize("name", [name for name, bound in BOUNDS.items() if bound.most is not None])
def test_a_limit_is_not_above_its_most(name):
    assert getattr(Limits(**{name: BOUNDS[name].most}), name) == BOUNDS[name].most
    with pytest.raises(ConfigError, match=f"cannot take limit {name}=.*: the most is {BOUNDS[name].most}"):
        Limits(**{name: BOUNDS[name].most + 1})


def test_rlimits_are_named_as_the_module_resource_names_them():
    assert DEFAULT.rlimits == {
        "RLIMIT_NPROC": DEFAULT.processes,
        "RLIMIT_NOFILE": DEFAULT.open_files,
        "RLIMIT_FSIZE": DEFAULT.disk_bytes,
    }
    assert all(hasattr(resource, name) for name in DEFAULT.rlimits)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_limit_goes_through_the_message_and_back(name):
    value = 7.5 if BOUNDS[name].unit == SECONDS else 7
    message = pb.Limits(**{name: convert.duration(value) if BOUNDS[name].unit == SECONDS else value})
    assert convert.limits_wish(message) == {name: value}


def test_the_message_says_how_large_tmp_really_is():
    small = Limits(memory_bytes=400, tmp_bytes=200)
    assert convert.limits_message(small).tmp_bytes == 100
    assert convert.limits_wish(convert.limits_message(DEFAULT)) == {
        name: value for name in BOUNDS if (value := getattr(DEFAULT, name))
    }
