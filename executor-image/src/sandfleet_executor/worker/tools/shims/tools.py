"""`import tools` in programs of the session: worker/tools/functions.py."""

import importlib
import sys
from pathlib import Path

WORKER = Path(__file__).absolute().parents[2]

sys.path.append(str(WORKER.parent))
functions = importlib.import_module(f"{WORKER.name}.tools.functions")
sys.path.pop()
# Python gives its importer what stands here after this file has run.
sys.modules[__name__] = functions.Tools()
