#!/usr/bin/env bash
# What is too long for CI, one after the other; each part says how it ended: nightly.sh [PART…].
set -uo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ $# -gt 0 ] || parts=(flakes contract joint cells attacks conformance wheels-test cluster-test pod-test cluster-scale flood fresh)
export SANDFLEET_KEEP=1
failed=0
for part in "${parts[@]}"; do
    arguments=()
    case $part in
    flakes) arguments=(N=20) ;;
    joint) arguments=(N=300) ;;
    cells) arguments=(N=10000) ;;
    flood) arguments=(N=10000) ;;
    esac
    begun=$SECONDS status=0
    make "$part" "${arguments[@]}" || status=$?
    echo "nightly: $part: exit $status after $(((SECONDS - begun) / 60)) minutes"
    [ "$status" = 0 ] || failed=1
done
make cluster-down
exit "$failed"
