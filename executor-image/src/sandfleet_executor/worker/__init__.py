"""What runs inside the session namespace: the only folder of the executor that is mounted there.

It imports nothing of the rest of the executor. It needs the standard library, IPython, cloudpickle and packaging, and
the rules (`sandfleet_rules`), which are mounted beside it.
Rooms, from the top down: `init` (PID 1 and its children) and `programs` (what the executor runs as commands), then
`python` and `bash` (one room a language, which do not know each other), then `wasm` (skills that are WebAssembly), then
`languages.py`, `tools` and `packages` (the session's pip, which `shims` starts), then `base` (what all of them need).
"""

# Now, while the folder above both is on the path: programs of the session take it away again.
import sandfleet_rules as _rules  # noqa: F401
