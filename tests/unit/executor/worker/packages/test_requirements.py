"""Whether a requirement is met by installed packages, and what a killed installation leaves."""

import os

import pytest
from packaging.version import Version
from sandfleet_executor.worker.packages.distributions import installed
from sandfleet_executor.worker.packages.requirements import Installed
from sandfleet_executor.worker.programs import install


def put(folder, name, version, *needs, extras=(), made=None):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {each}" for each in needs] + [f"Provides-Extra: {each}" for each in extras]
    (info / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""])
    )
    if made is not None:
        os.utime(info, (made, made))


def state(folder, requirement):
    return Installed(str(folder)).find(requirement)["state"]


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("own-package", "installed"),
        ("Own.Package==1.5", "installed"),
        ("own_package>=2", "missing"),
        ("own-package; python_version<'3'", "not-needed"),
        ("unknown", "missing"),
        ("ipython>=8", "installed"),
        ("ipython==0.1", "missing"),
    ],
)
def test_requirements_match_names_versions_and_markers(tmp_path, requirement, expected):
    put(tmp_path, "own-package", "1.5")
    assert state(tmp_path, requirement) == expected


def test_a_package_is_missing_without_its_own_requirements(tmp_path):
    put(tmp_path, "own", "1", "needed>=2", "ipython>=1", "never; python_version<'3'")
    assert state(tmp_path, "own") == "missing"
    put(tmp_path, "needed", "2", "own")
    # Two that need each other are no endless way.
    assert state(tmp_path, "own") == "installed"


def test_an_extra_is_missing_without_its_own_requirements(tmp_path):
    put(tmp_path, "own", "1", "more; extra == 'x'", extras=("x",))
    assert (state(tmp_path, "own"), state(tmp_path, "own[x]")) == ("installed", "missing")
    put(tmp_path, "more", "1")
    assert state(tmp_path, "own[x]") == "installed"


def test_packages_of_the_image_come_first(tmp_path):
    put(tmp_path, "ipython", "99")
    assert state(tmp_path, "ipython==99") == "missing"
    assert Installed(str(tmp_path)).find("ipython")["origin"] == "image"


def test_an_installed_prerelease_meets_a_requirement(tmp_path):
    put(tmp_path, "own", "2.0rc1")
    assert state(tmp_path, "own>=1") == "installed"


@pytest.mark.parametrize("newest", ["1.0", "2.0"])
def test_of_two_versions_the_newest_record_counts(tmp_path, newest):
    for version in ("1.0", "2.0"):
        put(tmp_path, "own", version, made=200 if version == newest else 100)
    assert [version for _, version, _ in installed([str(tmp_path)])] == [newest]


def test_constraints_for_pip_are_the_readable_versions_of_the_image(tmp_path):
    put(tmp_path, "own", "1")
    found = Installed(str(tmp_path))
    lines = found.of_image()
    assert any(line.startswith("ipython==") for line in lines)
    assert not any(line.startswith("own==") for line in lines)
    assert all(Version(line.partition("==")[2]) for line in lines)


@pytest.mark.parametrize("broken", [b"", b"\xff" * 100, b"Name: x\n", b"Name: \nVersion: 1\n"])
def test_packages_with_invalid_metadata_are_ignored(tmp_path, broken):
    put(tmp_path, "own", "1")
    (tmp_path / "evil-1.dist-info").mkdir()
    (tmp_path / "evil-1.dist-info" / "METADATA").write_bytes(broken)
    assert (state(tmp_path, "own"), state(tmp_path, "evil")) == ("installed", "missing")


# What an installation that was killed has left


@pytest.mark.parametrize("whole", [True, False])
def test_pending_packages_count_only_if_pip_has_finished(tmp_path, whole):
    target, area = tmp_path / "packages", tmp_path / "installing"
    put(target, "own", "1")
    put(target, "other", "1")
    (area / "tmp").mkdir(parents=True)
    (area / "pending.json").write_text('["Own"]')
    install.recover(target, area, whole=whole)
    assert not area.exists()
    assert (state(target, "own"), state(target, "other")) == ("installed" if whole else "missing", "installed")


@pytest.mark.parametrize("pending", [None, "", "{", "[1]", "3", '["../../x"]'])
def test_a_working_folder_without_a_valid_list_is_removed(tmp_path, pending):
    target, area = tmp_path / "packages", tmp_path / "installing"
    put(target, "own", "1")
    area.mkdir()
    if pending is not None:
        (area / "pending.json").write_text(pending)
    install.recover(target, area)
    assert not area.exists()
    assert state(target, "own") == "installed"


def test_a_working_folder_that_is_a_link_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (tmp_path / "installing").symlink_to(elsewhere)
    install.recover(tmp_path / "packages", tmp_path / "installing")
    assert (elsewhere / "kept").exists()
    assert not (tmp_path / "installing").is_symlink()
