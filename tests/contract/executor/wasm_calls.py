"""Skills that are WebAssembly in a sandbox under test: put there, called, and what their calls have given."""

import json
import secrets

import wasmtime
from contract.executor.wasm_modules import manifest
from sandfleet import Outcome

CALL = """
import json, wasm_skill
try:
    said = wasm_skill.load({path!r}).call({function!r}{arguments})
except wasm_skill.SkillError as error:
    said = {{"error": type(error).__name__, "reason": error.reason, "message": str(error)[:300]}}
except TypeError as error:
    said = {{"error": "TypeError", "message": str(error)[:300]}}
json.dumps(said)
"""
PLANT = """
import os, socket
for folder in ("data", "out", "lib"):
    os.makedirs(folder, exist_ok=True)
open("secret.json", "w").write('"secret"')
open("data/known.json", "w").write('"known"')
open("out/old.json", "w").write('"old"')
for name, target in {"up": "../secret.json", "absolute": "/workspace/secret.json", "folder": "..", "root": "/",
                     "process": "/proc/self/environ", "inside": "known.json"}.items():
    if not os.path.islink(f"data/{name}"):
        os.symlink(target, f"data/{name}")
"""


async def planted(sandbox):
    """The sandbox with folders, a secret, and links to it."""
    (await sandbox.run_code(PLANT)).raise_for_error()
    return sandbox


def caller(sandbox):
    """`await call(module, functions, "f", folders=…)` gives what a new skill's function gives."""

    async def call(code, functions, function, arguments=None, sandbox=sandbox, **granted):
        path = await installed(sandbox, code, manifest(functions, **granted))
        return await called(sandbox, path, function, arguments)

    return call


async def installed(sandbox, code, text):
    path = f"lib/s{secrets.token_hex(4)}"
    await sandbox.files.write(f"{path}.wasm", code)
    await sandbox.files.write(f"{path}.json", text)
    return path


async def called(sandbox, path, function, arguments=None):
    given = "".join(f", {name}={value!r}" for name, value in (arguments or {}).items())
    execution = await sandbox.run_code(CALL.format(path=path, function=function, arguments=given), timeout=120)
    assert execution.outcome is Outcome.OK, execution
    return json.loads(eval(execution.text))


def refusal(said):
    return said["error"], said["reason"]


def alone(code, function, configure):
    """What a module's function gives in wasmtime without our rules: for controls."""
    engine = wasmtime.Engine()
    store, linker, wasi = wasmtime.Store(engine), wasmtime.Linker(engine), wasmtime.WasiConfig()
    configure(wasi)
    store.set_wasi(wasi)
    linker.define_wasi()
    loaded = wasmtime.Module(engine, code)
    linker.define_unknown_imports_as_traps(loaded)
    return linker.instantiate(store, loaded).exports(store)[function](store)
