"""The real pip for programs that import it; `python -m pip` is the session's own (__main__.py)."""

from contextlib import suppress
from importlib import metadata
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> str:
    if name == "__version__":
        with suppress(metadata.PackageNotFoundError):
            return metadata.version("pip")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
