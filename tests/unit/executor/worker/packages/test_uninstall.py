"""Packages are removed from the session's folder, and nothing else is."""

import pytest
from sandfleet_executor.worker.packages.uninstall import uninstall


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "workspace/.sandfleet/packages"
    made.mkdir(parents=True)
    return made


def install(folder, name, *files, version="1.0"):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{info.name}/METADATA")))
    for file in files:
        if not file.startswith(("..", "/")):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("")


def test_its_modules_programs_and_records_go_and_those_of_others_stay(folder, capsys):
    install(folder, "own_package", "own/__init__.py", "own/deep/a.py", "shared/a.py", "../../bin/own")
    install(folder, "own-package", "own/old.py", version="0.9")
    install(folder, "other", "shared/b.py", "../../bin/other")
    (folder / "bin").mkdir()
    for name in ("own", "other"):
        (folder / "bin" / name).write_text("")
    assert uninstall(["Own.Package"], str(folder)) == 0
    assert "Successfully uninstalled own-package-" in capsys.readouterr().out
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert left == ["bin/other", "other-1.0.dist-info/METADATA", "other-1.0.dist-info/RECORD", "shared/b.py"]
    assert not (folder / "own").exists()


@pytest.mark.parametrize("named", ["../../mine.txt", "../../bin/../../../mine.txt", "{workspace}/mine.txt"])
def test_a_record_that_names_files_elsewhere_removes_none_of_them(folder, named):
    workspace = folder.parents[1]
    (workspace / "mine.txt").write_text("kept")
    install(folder, "evil", named.format(workspace=workspace))
    (folder / "bin").mkdir(exist_ok=True)
    assert uninstall(["evil"], str(folder)) == 0
    assert (workspace / "mine.txt").read_text() == "kept"


def test_a_package_of_the_image_stays_and_an_unknown_one_is_named(folder, capsys):
    assert uninstall(["pytest", "nothing-of-this-name"], str(folder)) == 1
    said = capsys.readouterr().err
    assert "cannot uninstall pytest: it is part of the sandbox's image" in said
    assert "Skipping nothing-of-this-name as it is not installed" in said
