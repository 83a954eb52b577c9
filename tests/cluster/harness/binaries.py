"""The programs of the cluster, built from pinned Go modules into a cache and checked before each use."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .layout import SOURCES, ClusterError

KUBERNETES = "v1.35.4"
SUMS = "SHA256SUMS"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Module:
    """One directory with go.mod and go.sum; `programs` maps a file to the package that it is built from.

    `seconds` is what a first build took on two cores, its downloads included.
    """

    name: str
    programs: Mapping[str, str]
    seconds: int
    tags: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return SOURCES / self.name

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.programs, *(alias for aliases in self.aliases.values() for alias in aliases))

    @property
    def link_flags(self) -> str:
        return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in self.variables.items())])


_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
MODULES = (
    Module("testkit", {"probe": "./probe", "sandfleet-policy": "./policy"}, seconds=16),
    Module("etcd", {"etcd": "."}, seconds=31),
    Module(
        "gvisor",
        {"runsc": "gvisor.dev/gvisor/runsc", "containerd-shim-runsc-v1": "gvisor.dev/gvisor/shim"},
        seconds=103,
    ),
    Module(
        "containerd",
        {name: f"{_CONTAINERD}/{name}" for name in ("containerd", "ctr", "containerd-shim-runc-v2")},
        seconds=77,
        tags="no_btrfs no_devmapper no_zfs",
    ),
    Module(
        "kubernetes",
        {"kubernetes": "."},
        seconds=330,
        tags="providerless",
        # Without a version the server says v0.0.0, and version gates and helm misbehave.
        variables={
            "k8s.io/component-base/version.gitVersion": KUBERNETES,
            "k8s.io/client-go/pkg/version.gitVersion": KUBERNETES,
            "k8s.io/component-base/version.gitMajor": "1",
            "k8s.io/component-base/version.gitMinor": "35",
        },
        aliases={
            "kubernetes": (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kube-proxy",
                "kubelet",
                "kubectl",
            )
        },
    ),
    Module("coredns", {"coredns": "github.com/coredns/coredns"}, seconds=192),
    Module("volume-provisioner", {"volume-provisioner": "."}, seconds=38),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, seconds=74),
    Module("helm", {"helm": "helm.sh/helm/v4/cmd/helm"}, seconds=100),
    Module("versitygw", {"versitygw": "github.com/versity/versitygw/cmd/versitygw"}, seconds=107),
    Module("prometheus", {"prometheus": "."}, seconds=200),
    Module("collector", {"collector": "."}, seconds=200),
)


def digest(module: Module, toolchain: str) -> str:
    """Names one build: its sources, its pins and how it is made."""
    summary = hashlib.sha256(
        repr((module.programs, module.tags, module.link_flags, module.aliases, toolchain)).encode()
    )
    for path in sorted(path for path in module.source.rglob("*") if path.is_file()):
        summary.update(str(path.relative_to(module.source)).encode() + b"\0" + path.read_bytes())
    return summary.hexdigest()[:16]


def checksum(path: Path) -> str:
    summary = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            summary.update(block)
    return summary.hexdigest()


def intact(directory: Path) -> bool:
    """Whether a build is there, whole and unchanged."""
    try:
        lines = (directory / SUMS).read_text().splitlines()
        return all(checksum(directory / name) == value for value, name in (line.split("  ", 1) for line in lines))
    except FileNotFoundError:
        return False


def _go(*arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(
        ["nice", "-n", "19", "go", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(f"cannot build with go {arguments[0]} in {cwd.name}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def toolchain(module: Module) -> str:
    """The compiler that a module gets, which may be a newer one than what is installed."""
    if shutil.which("go") is None:
        raise ClusterError(
            "cannot start a cluster: go is missing; its programs are built from source (install Go 1.21 or later: "
            "it fetches the version that each module asks for)"
        )
    return _go("env", "GOVERSION", cwd=module.source)


def _build(module: Module, target: Path) -> None:
    """Compile into a directory beside the target, then rename; an interrupted build resumes from Go's own cache."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    jobs = os.environ.get("SANDFLEET_BUILD_JOBS") or str(os.cpu_count() or 1)
    for name, package in module.programs.items():
        flags = ["-p", jobs, "-trimpath", "-buildvcs=false", "-tags", module.tags, "-ldflags", module.link_flags]
        _go("build", "-mod=readonly", *flags, "-o", str(partial / name), package, cwd=module.source)
    (partial / SUMS).write_text("".join(f"{checksum(partial / name)}  {name}\n" for name in module.programs))
    for program, aliases in module.aliases.items():
        for alias in aliases:
            (partial / alias).symlink_to(program)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two builds at once would only take each other's processors."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _targets(cache: Path, only: Iterable[str]) -> Iterator[tuple[Module, Path]]:
    for module in MODULES:
        if not only or set(module.names) & set(only):
            yield module, cache / "bin" / f"{module.name}-{digest(module, toolchain(module))}"


def _building(module: Module) -> str:
    return f"building {module.name} from source"


def planned(cache: Path, only: Iterable[str] = ()) -> dict[str, float]:
    """What `provide` will say, with the usual seconds of each; a damaged build comes on top."""
    return {_building(module): module.seconds for module, target in _targets(cache, only) if not target.exists()}


def provide(cache: Path, say: Callable[[str], None], only: Iterable[str] = ()) -> dict[str, Path]:
    """Every program by name (or those of the modules in `only`), built if the cache lacks it or its checksum is wrong.

    Raises:
        ClusterError: Go is missing or a build failed.
    """
    programs: dict[str, Path] = {}
    with _alone(cache / "bin"):
        for cut_off in (cache / "bin").glob("*.partial"):
            shutil.rmtree(cut_off)
        for module, target in _targets(cache, only):
            if not intact(target):
                say(_building(module))
                _build(module, target)
            programs |= {name: target / name for name in module.names}
    return programs
