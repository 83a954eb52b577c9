"""`import wasm_skill` in programs of the session: worker/wasm/skill.py."""

import importlib
import sys
from pathlib import Path

WORKER = Path(__file__).absolute().parents[1]

sys.path.append(str(WORKER.parent))
skill = importlib.import_module(f"{WORKER.name}.wasm.skill")
sys.path.pop()
# Python gives its importer what stands here after this file has run.
sys.modules[__name__] = skill.module()
