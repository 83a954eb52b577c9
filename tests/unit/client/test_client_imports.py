"""What an import brings in, and what values show."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType

import pytest
import sandfleet
import sandfleet.values
from sandfleet._lazy import homes
from sandfleet._wire import api
from sandfleet.values import _show
from sandfleet.values.execution import Execution, ExecutionError, Logs, Outcome, Result

HEAVY = ("grpc", "google.protobuf", "opentelemetry", "sandfleet_api", "sandfleet_operator", "sandfleet_executor")


@pytest.mark.process
@pytest.mark.parametrize(
    "line", ["import sandfleet", "from sandfleet import Sandbox, AsyncSandbox", "import sandfleet.cli"]
)
def test_an_import_brings_in_nothing_heavy(line: str) -> None:
    program = f"{line}\nimport sys, json\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(json.loads(done.stdout))


def test_the_bare_client_needs_at_most_five_packages_of_others() -> None:
    needed = [line for line in requires("sandfleet") or () if "extra ==" not in line]
    assert needed
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "agent-client" / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 5


def test_every_public_name_is_there_and_the_others_say_that_they_are_not() -> None:
    for name in sandfleet.__all__:
        assert getattr(sandfleet, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sandfleet.nothing  # noqa: B018


@pytest.mark.parametrize("package", [sandfleet, sandfleet.values])
def test_each_name_that_type_checkers_see_is_there_at_run_time(package: ModuleType) -> None:
    seen = {
        alias.asname: node.module
        for node in ast.walk(ast.parse(Path(package.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith(f"{package.__name__}.") and node.col_offset
        for alias in node.names
    }
    assert homes(package.__name__) == seen
    for name, module in seen.items():
        assert getattr(package, name) is getattr(import_module(module), name)
    assert seen.keys() <= set(dir(package))


def test_each_module_of_the_wire_is_there_at_run_time() -> None:
    assert all(isinstance(getattr(api, name), ModuleType) for name in api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        api.nothing  # noqa: B018


def test_a_repr_is_one_short_line() -> None:
    failed = Execution("e", Outcome.ERROR, error=ExecutionError("ValueError", "a\nb" * 500))
    assert repr(failed).startswith("Execution(e, error, ValueError: a ba b")
    assert len(repr(failed)) < 120
    assert (
        repr(Execution("e", Outcome.OK, results=(Result({"text/plain": "42"}, is_main_result=True),)))
        == "Execution(e, ok, 42)"
    )


def test_jupyter_gets_text_pictures_and_the_error_but_no_foreign_html() -> None:
    picture = Result({"text/plain": "<Figure>", "text/html": "<script>x</script>", "image/png": b"\x89P"})
    bundle = Execution("e", Outcome.OK, logs=Logs("<b>out</b>\n"), results=(picture,))._repr_mimebundle_()
    assert bundle["text/plain"] == "<b>out</b>\n<Figure>"
    assert "script" not in bundle["text/html"]
    assert "<b>" not in bundle["text/html"]
    assert "data:image/png;base64,iVA=" in bundle["text/html"]
    assert picture._repr_mimebundle_()["image/png"] == "iVA="


def test_values_become_json() -> None:
    value = Execution("e", Outcome.OK, results=(Result({"image/png": b"\x89P"}),))
    assert json.loads(json.dumps(_show.to_json(value)))["results"][0]["parts"] == {"image/png": "iVA="}
