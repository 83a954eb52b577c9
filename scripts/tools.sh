#!/usr/bin/env bash
# Brings the programs of others that tests use: tools.sh. Debian's packages need root. What Go modules give is built
# into the cache once, with checksums (tests/cluster/harness/binaries.py). Without one of them its tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
# Program → Debian's package.
declare -A packages=(
    [chromium]=chromium [node]=nodejs [zsh]=zsh [fish]=fish [nft]=nftables [strace]=strace
)
for program in "${!packages[@]}"; do scripts/debian.sh "$program" "${packages[$program]}"; done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests .venv/bin/python -m cluster.harness binaries helm versitygw prometheus collector
echo "tools: all are there"
