#!/usr/bin/env bash
# Makes .venv from requirements.lock and looks for bubblewrap. Does nothing if both are there.
set -euo pipefail
cd "$(dirname "$0")/.."
# bubblewrap isolates the sandboxes.
scripts/debian.sh bwrap bubblewrap
stamp=.venv/.sandfleet-$(cat requirements.lock pyproject.toml scripts/setup.sh | sha256sum | cut -c1-16)
[ -e "$stamp" ] && exit 0
python=$(scripts/python.sh)
echo "setup: making .venv (about a minute the first time)" >&2
uv=$(scripts/uv.sh)
# Trust the machine's certificates, also behind a company's proxy.
export UV_SYSTEM_CERTS=1
"$uv" venv --quiet --allow-existing --python "$python" .venv
export VIRTUAL_ENV=$PWD/.venv
# Sandboxes see this environment read-only: without byte code each would compile its imports again.
"$uv" pip sync --quiet --compile-bytecode --require-hashes requirements.lock
"$uv" pip install --quiet --no-deps --no-build-isolation --editable .
rm -f .venv/.sandfleet-*
touch "$stamp"
