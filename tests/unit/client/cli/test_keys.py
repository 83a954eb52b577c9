"""The key q on screens that are drawn until Ctrl-C."""

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import threading
from sandfleet.cli.terminal import keys
with keys.quitting():
    print("shown", flush=True)
    threading.Event().wait(60)
"""


@pytest.mark.process
def test_q_ends_a_screen_as_ctrl_c_does_and_other_keys_do_not():
    main, side = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=side, stdout=side, stderr=side) as program:
        os.close(side)
        seen = b""
        while b"shown" not in seen:
            seen += os.read(main, 100)
        os.write(main, b"xq")
        while b"KeyboardInterrupt" not in seen:
            seen += os.read(main, 1000)
        program.wait(60)
    os.close(main)
    assert program.returncode in {-2, 1, 130}
