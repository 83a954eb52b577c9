#!/usr/bin/env bash
# Hashes, but no index: the machine decides where packages come from.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(scripts/uv.sh)
# Trust the machine's certificates, also behind a company's proxy.
export UV_SYSTEM_CERTS=1
compile() { # output, input…
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
        --no-emit-find-links --no-emit-package sandfleet-api --output-file "$@"
}
compile requirements.lock --group dev --group workbench pyproject.toml
# The site of the docs has an environment of its own.
compile docs/site/requirements.lock --group docs
# The images get the tested versions.
compile executor-image/requirements.lock --constraint requirements.lock --all-extras --group image executor-image/pyproject.toml
compile operator/requirements.lock --constraint requirements.lock operator/pyproject.toml
