"""Skills that are WebAssembly modules: what a library keeps of them, and the Python that code in a session imports.

The module is not looked at here: an agent has made it. The manifest is read as far as the Python needs it; the session
reads it as a whole, and refuses one that is wrong. Pure.
"""

from __future__ import annotations

import base64
import json
import keyword
from collections.abc import Iterator, Mapping
from typing import Any

from sandfleet.errors import InvalidArgument
from sandfleet.skills.skill import WasmModule

# Bytes of a module, and of a manifest.
LARGEST_MODULE, LARGEST_MANIFEST = 2 << 20, 64 << 10
MAGIC = b"\0asm"
_MOST_FUNCTIONS = 50
_NAME_LIMIT, _DOC_LIMIT = 64, 2000


def checked(name: str, module: bytes, manifest: Mapping[str, Any]) -> WasmModule:
    """Return module and manifest as a library keeps them. Raises InvalidArgument."""
    try:
        text = json.dumps(dict(manifest), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(name, f"its manifest is no JSON: {error}") from None
    if len(text) > LARGEST_MANIFEST:
        raise _refused(name, f"its manifest is over {LARGEST_MANIFEST >> 10} KiB")
    if not module.startswith(MAGIC):
        raise _refused(name, "it is no WebAssembly module")
    if len(module) > LARGEST_MODULE:
        raise _refused(name, f"its module is over {LARGEST_MODULE >> 20} MiB")
    return WasmModule(module, text)


def source(name: str, wasm: WasmModule) -> str:
    """Return the Python of a skill: a function for each of the manifest's. Raises InvalidArgument."""
    said = json.loads(wasm.manifest)
    functions = said.get("functions")
    if not isinstance(functions, list) or not 0 < len(functions) <= _MOST_FUNCTIONS:
        raise _refused(name, f"its manifest has no list of 1 to {_MOST_FUNCTIONS} functions")
    # Texts stand in the source as literals: a manifest is no code.
    head = [_text(name, said), "import wasm_skill as _wasm_skill", "_skill = _wasm_skill.load(__file__)"]
    return "\n\n".join([*head, *(f"\n{part}" for each in functions for part in _function(name, each))]) + "\n"


def kept(wasm: WasmModule) -> dict[str, Any]:
    """Return what stands for it in a JSON object."""
    return {"module": base64.b64encode(wasm.module).decode(), "manifest": wasm.manifest}


def read(said: Mapping[str, Any]) -> WasmModule:
    """Return what `kept` has written. Raises ValueError, KeyError, TypeError."""
    return WasmModule(base64.b64decode(said["module"], validate=True), str(said["manifest"]))


def _function(name: str, said: object) -> Iterator[str]:
    if not isinstance(said, Mapping):
        raise _refused(name, "a function of its manifest is no object")
    function, parameters = said.get("name"), said.get("parameters", [])
    if not isinstance(parameters, list) or len({str(each) for each in parameters}) != len(parameters):
        raise _refused(name, "the parameters of a function are no list of different names")
    for each in (function, *parameters):
        if not _is_name(each):
            raise _refused(name, f"{str(each)[:80]!r} is no name of a function or parameter")
    given = "".join(f", {each}={each}" for each in parameters)
    lines = [f"def {function}({', '.join(parameters)}):", _text(name, said), f"return _skill.call({function!r}{given})"]
    yield "\n    ".join(lines)


def _text(name: str, said: Mapping[str, Any]) -> str:
    doc = said.get("doc", "")
    if not isinstance(doc, str) or len(doc) > _DOC_LIMIT:
        raise _refused(name, f"a doc of its manifest is no text of at most {_DOC_LIMIT} letters")
    return ascii(doc)


def _is_name(value: object) -> bool:
    is_name = isinstance(value, str) and value.isascii() and value.isidentifier() and len(value) <= _NAME_LIMIT
    return is_name and not keyword.iskeyword(str(value)) and not str(value).startswith("_")


def _refused(name: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"cannot save the skill {name}: {why}", reason="InvalidWasmSkill")
