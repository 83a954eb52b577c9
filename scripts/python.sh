#!/usr/bin/env bash
# Prints the path of a Python that is new enough.
set -euo pipefail
for name in python3.11 python3 python3.12 python3.13 python3.14; do
    python=$(command -v "$name") || continue
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$python" && exit 0
done
found=$(python3 --version 2>/dev/null || echo "no Python 3")
echo "cannot set up: Python 3.11 or newer has to be on PATH, and $found is (Debian 12: sudo apt-get install python3)" >&2
exit 1
