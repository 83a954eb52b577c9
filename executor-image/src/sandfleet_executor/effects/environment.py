"""Has a short program look at what is installed, in the session and with its rights: the folder of packages is the user's."""

import json

from sandfleet_executor.core import bwrap, manifest
from sandfleet_executor.core.manifest import Manifest
from sandfleet_executor.effects import errands
from sandfleet_executor.effects.session import Session

SECONDS = 15.0


async def look(session: Session) -> Manifest:
    """Raises BadManifest where it cannot be looked at."""
    config, envs = session.config, session.environment({})
    wanted = json.dumps(list(config.packages))
    argv = errands.program(config, "manifest", f"{session.workdir}/{bwrap.PACKAGES}", wanted)
    said = await errands.run(argv, session.around, envs, session.limits, name="environment:look", seconds=SECONDS)
    if said.end.outcome != "ok":
        raise manifest.BadManifest(f"cannot look at what is installed: {said.end.message}")
    fixed = {name: envs[name] for name in bwrap.FIXED if name in envs}
    return manifest.parse(said.out, fixed, config.packages)
