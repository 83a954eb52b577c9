"""Each distribution builds a wheel with its packages; tests/wheels installs and runs them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "proto": {"sandfleet_api", "sandfleet_rules"},
    "executor-image": {"sandfleet_executor"},
    "operator": {"sandfleet_operator"},
    "agent-client": {"sandfleet", "sandfleet_command.py"},
    ".": {
        "sandfleet_api",
        "sandfleet_rules",
        "sandfleet_executor",
        "sandfleet_operator",
        "sandfleet",
        "sandfleet_command.py",
    },
}


@pytest.mark.process
@pytest.mark.parametrize("folder", PACKAGES)
def test_a_wheel_has_the_packages_of_its_distribution(folder: str, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / folder, capture_output=True, check=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == PACKAGES[folder]
