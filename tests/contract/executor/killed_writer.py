"""A host of executors that kill themselves with -9 at one moment of one record of the journal.

`python killed_writer.py FILE host ...`: FILE has "N MOMENT", for the N-th record that an executor writes.
"""

import itertools
import os
import signal
import sys
from pathlib import Path

from sandfleet_executor import __main__
from sandfleet_executor.effects.journal.files import LineFile

BEFORE, INSIDE, BEHIND = MOMENTS = ("before", "inside", "behind")
NEVER = "0 never"


def killing(plan):
    """An `append` for LineFile that follows the plan."""
    write, counted = LineFile.append, itertools.count(1)

    def append(file, line):
        number, moment = plan.read_text().split()
        if next(counted) != int(number):
            write(file, line)
            return
        write(file, line[: {BEFORE: 0, INSIDE: len(line) // 2, BEHIND: len(line)}[moment]])
        os.kill(os.getpid(), signal.SIGKILL)

    return append


if __name__ == "__main__":
    LineFile.append = killing(Path(sys.argv.pop(1)))
    sys.exit(__main__.main())
