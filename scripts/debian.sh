#!/usr/bin/env bash
# debian.sh PROGRAM PACKAGES…: installs the packages if the program is missing.
set -euo pipefail
program=$1
shift
command -v "$program" >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "cannot go on: $program is missing (Debian: sudo apt-get install $*)" >&2
    exit 1
fi
echo "installing $*" >&2
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"; } >&2
