#!/usr/bin/env bash
# Hashes, but no index: where packages come from is the machine's business.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(scripts/uv.sh)
"$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
    --no-emit-find-links --group dev --group workbench --output-file requirements.lock pyproject.toml "$@"
