"""Terminals as a person sees them: for the tests."""

import asyncio
import re


class Screen:
    """What a terminal has shown so far."""

    def __init__(self, handle):
        self.handle = handle
        self.shown = b""

    async def until(self, pattern):
        """Reads until the pattern has been shown, and forgets it with what came before; its match."""
        async with asyncio.timeout(60):
            while not (found := re.search(pattern, self.shown, re.DOTALL)):
                self.shown += await anext(self.handle)
        self.shown = self.shown[found.end() :]
        return found

    async def type(self, text):
        await self.handle.send(text)


async def shell(sandbox, **options):
    # No line editor: what is echoed is the terminal's doing, and the prompt is known.
    command = ["bash", "--norc", "--noprofile", "--noediting"]
    handle = await sandbox.pty.create(command=command, envs={"PS1": "@ ", **options.pop("envs", {})}, **options)
    screen = Screen(handle)
    await screen.until(rb"@ ")
    return screen


def python(sandbox, code, **options):
    return sandbox.pty.create(command=["python3", "-u", "-c", code], **options)


async def everything(handle):
    return b"".join([piece async for piece in handle])
