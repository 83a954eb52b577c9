"""The session's packages come last on the path of each Python of the session, as they do in its contexts."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder


def add_packages() -> None:
    """For the session's own Python alone: an environment of the user's has packages of its own."""
    own, folder = os.environ.get("SANDFLEET_PYTHON", ""), os.environ.get("SANDFLEET_PACKAGES", "")
    same = os.path.dirname(own) == os.path.dirname(sys.executable)  # noqa: PTH120 - pathlib is slow to import
    if own and folder and same and folder not in sys.path:
        sys.path.append(folder)


def seed() -> None:
    """Each Python of the session begins with the seed that this asks for, as a context does."""
    if given := os.environ.get("SANDFLEET_SEED"):
        import random

        random.seed(int(given) if given.isdecimal() and len(given) <= 10 else given)


def run_hidden() -> None:
    """Runs the file of this name that this one hides."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is slow to import
    found = PathFinder.find_spec(__name__, [path for path in sys.path if path != here])
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)


add_packages()
seed()
run_hidden()
