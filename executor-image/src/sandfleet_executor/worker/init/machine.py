"""The memory of the whole sandbox under gVisor: the only figure there that counts each shared page once."""

import os
import signal


class Machine:
    """For PID 1 under gVisor.

    Elsewhere `known` is false: the kernel serves others too, and nothing here does anything.
    """

    def __init__(self) -> None:
        self.known = os.getpid() == 1 and "gvisor" in os.uname().release
        self._before = self._used() if self.known else 0

    def used(self) -> int:
        """Bytes that user code uses: those above what was used before it began. 0 where unknown."""
        return max(0, self._used() - self._before) if self.known else 0

    def over(self, limit: int) -> bool:
        """Whether user code uses more than `limit` bytes."""
        return self.used() > limit

    def freeze(self) -> None:
        """Stops all processes but this one at once: with hundreds of processes there is no time to stop each."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        if self.known:
            try:
                os.kill(-1, number)
            except ProcessLookupError:
                return

    def _used(self) -> int:
        """Bytes."""
        fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = dict(line.split(b":") for line in os.read(fd, 4096).splitlines())
        finally:
            os.close(fd)
        return (int(fields[b"MemTotal"].split()[0]) - int(fields[b"MemFree"].split()[0])) << 10


def tmp_used(directories: list[str]) -> int:
    """Bytes in the file systems of the namespace that live in memory."""
    used = 0
    for path in directories:
        try:
            state = os.statvfs(path)
        except OSError:
            continue
        used += (state.f_blocks - state.f_bfree) * state.f_frsize
    return used
