"""`python -m sandfleet` is the command `sandfleet`."""

import sys

from sandfleet.cli import main

sys.exit(main())
