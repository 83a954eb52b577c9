"""The session's pip: packages/pip.py of the worker."""

import importlib
import sys
from pathlib import Path

WORKER = Path(__file__).absolute().parents[2]

if __name__ == "__main__":
    sys.path.append(str(WORKER.parent))
    pip = importlib.import_module(f"{WORKER.name}.packages.pip")
    sys.path.pop()
    sys.exit(pip.main(sys.argv[1:]))
