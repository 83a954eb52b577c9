"""`python -m sandfleet` is the command `sandfleet`."""

import sys

from sandfleet_command import main

sys.exit(main())
