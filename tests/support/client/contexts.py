"""The contexts that a sandbox of this machine lists before any cell."""

import shutil

# A machine without Node has no context of JavaScript.
DEFAULTS = ("default", "default-javascript") if shutil.which("node") else ("default",)
