#!/usr/bin/env bash
# Prints the path of a pinned uv, which it installs into the cache if it is missing.
set -euo pipefail
version=0.13.9
cache=${SANDFLEET_CACHE:-$HOME/.cache/sandfleet}
home=$cache/uv-$version
if [ ! -x "$home/bin/uv" ]; then
    python=$("$(dirname "$0")/python.sh")
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } >&2
        else
            echo "cannot set up: Python's venv module is missing (Debian: sudo apt-get install python3-venv)" >&2
            exit 1
        fi
    fi
    mkdir -p "$cache"
    partial=$(mktemp -d "$cache/uv-XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    "$python" -m venv "$partial"
    "$partial/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$version" >&2
    # uv is one native binary: it can be moved, unlike the environment around it.
    mkdir -p "$home/bin"
    mv -f "$partial/bin/uv" "$home/bin/uv"
fi
echo "$home/bin/uv"
