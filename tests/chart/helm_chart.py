"""The chart as helm renders it, for tests."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import yaml
from support.tools import tool

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/sandfleet"
RELEASE = NAMESPACE = "sandfleet"
Json = dict


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`helm template RELEASE CHART` with the arguments; it talks to no cluster."""
    command = [str(tool("helm")), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=clean, timeout=60)


def documents(text: str) -> tuple[Json, ...]:
    """The objects in a text of YAML; libyaml reads the chart in an eighth of the time that Python takes."""
    return tuple(value for value in yaml.load_all(text, Loader=yaml.CSafeLoader) if value)


@functools.cache
def rendered(*settings: str) -> tuple[Json, ...]:
    """The objects with these values (`--set-json`, like `crds.enabled=false`)."""
    done = run(*(part for one in settings for part in ("--set-json", one)))
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def loaded(path: Path) -> ModuleType:
    """A program that is in no package."""
    name = f"loaded_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(objects: tuple[Json, ...], kind: str, name: str = "") -> list[Json]:
    return [one for one in objects if one["kind"] == kind and name in ("", one["metadata"]["name"])]


def rights(objects: tuple[Json, ...]) -> list[Json]:
    """Each role with its rules, and who it is bound to, without the labels of one version of the chart."""
    kept = []
    for one in objects:
        if one["apiVersion"].startswith("rbac.authorization.k8s.io/"):
            place = {key: one["metadata"][key] for key in ("namespace", "name") if key in one["metadata"]}
            content = {key: one[key] for key in ("rules", "roleRef", "subjects") if key in one}
            kept.append({"kind": one["kind"], **place, **content})
    return sorted(kept, key=lambda one: (one["kind"], one.get("namespace", ""), one["name"]))
