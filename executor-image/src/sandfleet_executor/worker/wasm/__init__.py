"""Skills that are WebAssembly modules: they can do what their manifest names, and nothing else of the session.

`skill.py` is the part in the process that calls a skill. It starts a helper process (`helper.py`), in which
`machine.py` runs the module. Tools are called by the calling process, which compares their names with the manifest: the
helper has no key to the host.
"""
