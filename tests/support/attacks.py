"""`--attacks FILE`: the tests that are attacks, one line each, and the same as JSON (`make attacks`).

`@pytest.mark.attack(name, expected, control=…)` says what hostile code or a hostile peer tries, and what it is to meet.
Each parameter of such a test is one attack, but one with the id `control`: there the defence is off, as in a test with
`@pytest.mark.control(*names)`, in which the same works. A test that compares with an executor without a session
(`unprotected`), or that says `control="in it"`, has its control in itself.
"""

import json
from pathlib import Path

IN_IT, NONE = "in it", ""
CONTROL = "control"
PLACES = {"root": "one machine, root", "user": "one machine, without root", "pod": "gVisor pod"}
_PROPERTY = "sandfleet attack"


def pytest_addoption(parser):
    parser.addoption(
        "--attacks", metavar="FILE", help="run the attacks and their controls alone; write what held to FILE"
    )
    parser.addoption("--place", choices=PLACES, default="root", help="where the attacks run, for the table")


def pytest_configure(config):
    if path := config.getoption("--attacks"):
        config.pluginmanager.register(Attacks(config, Path(path)), "sandfleet-attacks")


def described(item) -> dict[str, object] | None:
    """What a test is to the table: an attack, or a control; None: neither."""
    if marker := item.get_closest_marker("attack"):
        name, expected = marker.args
        case = item.callspec.id if hasattr(item, "callspec") else ""
        if CONTROL in case.split("-"):
            return {"controls": [name]}
        inside = marker.kwargs.get("control") == IN_IT or "unprotected" in item.fixturenames
        return {"attack": name, "case": case, "expected": expected, "control": IN_IT if inside else NONE}
    if marker := item.get_closest_marker("control"):
        return {"controls": list(marker.args)}
    return None


class Attacks:
    """The attacks of one run."""

    def __init__(self, config, path: Path):
        self._path, self._place = path, config.getoption("--place")
        self._is_worker = hasattr(config, "workerinput")
        # Test → what is known of it.
        self._found: dict[str, dict[str, object]] = {}
        self._controls: dict[str, dict[str, bool]] = {}

    def pytest_collection_modifyitems(self, config, items):
        chosen = [item for item in items if described(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
        for item in items:
            item.user_properties.append((_PROPERTY, described(item)))

    def pytest_runtest_logreport(self, report):
        said = dict(report.user_properties).get(_PROPERTY)
        if said is None or self._is_worker or (report.when != "call" and report.passed):
            return
        if "controls" in said:
            for name in said["controls"] if not report.skipped else ():
                self._controls.setdefault(name, {})[report.nodeid] = report.passed
            return
        self._found[report.nodeid] = {
            **said,
            "held": None if report.skipped else report.passed,
            "observed": observed(said, report),
        }

    def pytest_terminal_summary(self, terminalreporter):
        if self._is_worker:
            return
        rows = [self._row(each) for each in self._found.values()]
        where = PLACES[self._place]
        for row in rows:
            terminalreporter.write_line(line(where, row))
        held = sum(row["held"] is True for row in rows)
        open_ = sum(row["held"] is False for row in rows)
        bare = sorted({str(row["attack"]) for row in rows if row["control"] == NONE})
        terminalreporter.write_line(
            f"{where}: {len(rows)} attacks, {held} held, {open_} not held, {len(rows) - held - open_} not for this place"
        )
        if bare:
            terminalreporter.write_line(f"without a control here: {'; '.join(bare)}")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"place": self._place, "attacks": rows}, indent=1, sort_keys=True) + "\n")

    def _row(self, found):
        controls = self._controls.get(found["attack"])
        control = found["control"] or (("works" if all(controls.values()) else "does not work") if controls else NONE)
        return {**found, "control": control}


def observed(said, report) -> str:
    """In a line. pytest keeps the reason of a skipped test as (file, line, reason)."""
    if report.passed:
        return said["expected"]
    if report.skipped:
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr)).splitlines()[0][:200]


def line(where: str, row) -> str:
    """One attack."""
    verdict = {True: "held", False: "NOT HELD", None: "-"}[row["held"]]
    name = f"{row['attack']}: {row['case']}" if row["case"] else row["attack"]
    return f"{verdict:8} {where} | {name} | expected: {row['expected']} | observed: {row['observed']}"
