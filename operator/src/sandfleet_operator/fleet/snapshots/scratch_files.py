"""Files for exports and imports on their way."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def scratch_file() -> AsyncGenerator[Path, None]:
    """The path of a new file of this user's alone, which is removed at the end. No disk is waited for by the loop."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="sandfleet-")
    try:
        yield Path(folder) / "snapshot"
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
