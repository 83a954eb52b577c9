"""Cgroups of a sandbox, in folders that look like version 1 and version 2 of them."""

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sandfleet_executor.core.limits import Limits
from sandfleet_executor.effects.namespace import cgroup

MIB = 1 << 20
# Controller → files that the kernel makes in each of its cgroups.
V1 = {
    "pids": ("pids.max",),
    "memory": ("memory.limit_in_bytes", "memory.oom_control", "memory.stat", "memory.usage_in_bytes"),
    "cpu": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"),
}
V2 = ("pids.max", "memory.high", "memory.stat", "memory.current", "cpu.weight", "cpu.max", "cgroup.subtree_control")
LIMITS = Limits(memory_bytes=256 * MIB, processes=64)
HARD = str(512 * MIB)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Makes the files of a folder as it is made: `kernel(files of a folder)`."""
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_own_place", lambda _: "")
    mkdir = Path.mkdir

    def use(files_of):
        def make(folder, *given, **options):
            mkdir(folder, *given, **options)
            for name in (*files_of(folder), "cgroup.procs"):
                (folder / name).touch()

        monkeypatch.setattr(Path, "mkdir", make)
        return tmp_path

    return use


def test_in_version_1_each_controller_has_a_folder_of_its_own(kernel, tmp_path):
    for controller in V1:
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    kernel(lambda folder: V1[folder.relative_to(tmp_path).parts[0]])
    found = cgroup.make("one", LIMITS)
    assert found.processes == tmp_path / "pids/sandfleet-one"
    assert found.code == (tmp_path / "memory/sandfleet/one", tmp_path / "cpu/sandfleet/one")
    assert (found.code[0] / "memory.limit_in_bytes").read_text() == HARD
    assert found.weighs_cpu
    with contextlib.ExitStack() as opened:
        assert sorted(found.open_memory(opened)) == ["oom", "stat", "usage"]
        assert len(found.open_doors(opened)) == 2


def test_in_version_2_user_code_is_in_one_folder_with_all_controllers(kernel, tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("pids memory cpu")
    kernel(lambda _: V2)
    found = cgroup.make("one", LIMITS)
    assert found.code == (tmp_path / "sandfleet/one",)
    assert {(found.code[0] / name).read_text() for name in ("memory.high", "pids.max")} == {HARD, str(64 + 48)}
    # The folder above has to hand the controllers on.
    assert (tmp_path / "sandfleet/cgroup.subtree_control").read_text() == "+pids +memory +cpu"
    assert found.weighs_cpu


@pytest.mark.parametrize(("cpus", "v1", "v2"), [(0.0, "-1", "max 100000"), (1.5, "150000", "150000 100000")])
def test_the_quota_of_the_processors_is_written_as_each_version_has_it(kernel, tmp_path, cpus, v1, v2):
    for controller in V1:
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    kernel(lambda folder: V1[folder.relative_to(tmp_path).parts[0]])
    found = cgroup.make("one", Limits(cpus=cpus))
    assert (found.code[1] / "cpu.cfs_quota_us").read_text() == v1
    assert (found.code[1] / "cpu.cfs_period_us").read_text() == "100000"
    assert found.bounds_cpu
    assert cgroup.of_code(Limits(cpus=cpus))["cpu.max"] == v2


def test_lower_limits_of_a_claim_are_written_too(kernel, tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("pids memory cpu")
    kernel(lambda _: V2)
    found = cgroup.make("one", Limits())
    assert (found.code[0] / "memory.high").read_text() != HARD
    found.limit(replace(LIMITS, cpus=0.5))
    assert (found.code[0] / "memory.high").read_text() == HARD
    assert (found.code[0] / "cpu.max").read_text() == "50000 100000"
    assert (found.processes / "pids.max").read_text() == str(64 + 48)


def test_cgroups_that_were_swept_away_are_made_again(kernel, tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("pids memory cpu")
    kernel(lambda _: V2)
    groups = cgroup.make("one", LIMITS)
    for folder in (*groups.code, groups.processes):
        shutil.rmtree(folder)
    groups.limit(LIMITS)
    assert (groups.code[0] / "memory.high").read_text() == HARD
    with contextlib.ExitStack() as opened:
        assert len(groups.open_doors(opened)) == 1


def test_where_none_can_be_made_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    assert cgroup.make("one", LIMITS) == cgroup.Groups()
    assert not list(tmp_path.iterdir())
