"""The program `sandfleet`, outside of its package so that Ctrl-C ends it without a traceback during all its imports."""

import os
import signal
import sys
import warnings
from types import FrameType


def main() -> int:
    """Run the command line. Ctrl-C never shows a traceback: before and after the command it just ends."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[0].rpartition("/")[2].startswith("kubectl-"):
        # A plugin of kubectl works on kubectl's cluster.
        os.environ.setdefault("SANDFLEET_FLEET", "kubernetes")
    from sandfleet.cli import main as run

    try:
        if ours:
            signal.signal(signal.SIGINT, _on_ctrl_c)
        return run()
    except KeyboardInterrupt:
        return 130
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _on_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, which may swallow or show it, end at once."""
    # What was cut off in its middle complains otherwise.
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
