#!/usr/bin/env bash
# The tests on a real cluster: run.sh [arguments for pytest]. run.sh scale [arguments]: tests with hundreds of sandboxes.
# run.sh pods [arguments]: the executor's contract suite in gVisor pods. run.sh attacks [arguments]: its attacks alone.
# The cluster is that of KUBECONFIG, or one of our own. Ours is ended afterwards if it was not up before, unless
# SANDFLEET_KEEP=1.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$PWD/.venv/bin/python
harness() { PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests "$python" -m cluster.harness "$@"; }
suite() { # where → pytest's arguments; if they select no test there, it is not a failure
    local status=0
    "$python" -m pytest -q --timeout 300 "$@" || status=$?
    [ "$status" = 5 ] && return 0
    return "$status"
}

own=${SANDFLEET_CLUSTER_DIR:-/var/lib/sandfleet-cluster}/kubeconfig
if [ -z "${KUBECONFIG:-}" ] || [ "$(realpath -m "$KUBECONFIG")" = "$(realpath -m "$own")" ]; then
    if ! harness running; then
        [ -n "${SANDFLEET_KEEP:-}" ] || trap 'harness down' EXIT
        harness up
    fi
    # Before the tests, which have no time to build.
    scripts/image.sh
    export SANDFLEET_IMAGES=keep
fi
failed=0
part=cluster
case "${1:-}" in scale | pods | attacks) part=$1 && shift ;; esac
case $part in
cluster)
    # Most tests mostly wait: side by side they take a third of the time.
    suite tests/cluster -m "not alone and not scale" -n 6 --dist loadfile --no-loadscope-reorder "$@" || failed=$?
    # Tests alone on the cluster run one after the other; beside them run tests that begin clusters of their own.
    suite tests/cluster -m "alone and not scale" -n 2 --dist loadfile "$@" || failed=$?
    ;;
scale)
    suite tests/cluster -m scale "$@" || failed=$?
    ;;
pods)
    suite tests/contract/executor --executor pod --ignore tests/contract/executor/test_processes.py -n 2 --dist loadfile "$@" || failed=$?
    # Its fork bombs take all cores: no other test can measure beside them.
    suite tests/contract/executor/test_processes.py --executor pod "$@" || failed=$?
    ;;
attacks)
    # In one run, whose last lines are the table.
    "$python" -m pytest -q --timeout 300 --executor pod --place pod --attacks build/attacks/pod.json \
        tests/contract/executor -n 2 --dist loadfile "$@" || failed=$?
    ;;
esac
exit "$failed"
