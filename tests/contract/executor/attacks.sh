#!/usr/bin/env bash
# One line for each attack, and whether it held: attacks.sh PLACE… [-- arguments for pytest]. Places: root and user (this
# machine, with root and without), pod (gVisor pods of a cluster). build/attacks has the same as JSON.
# `user` needs root, to become a user without rights.
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=$PWD/.venv/bin/python
places=()
while (($#)) && [ "$1" != -- ]; do places+=("$1") && shift; done
[ $# = 0 ] || shift
mkdir -p build/attacks

# A user without rights, who may write nothing of the project. The home of root is closed to it, up to its interpreter.
unprivileged() {
    local home interpreter
    home=$(mktemp -d) && interpreter=$(dirname "$(dirname "$(realpath "$python")")")
    chown 65533:65533 "$home"
    unshare --mount --propagation private bash -euo pipefail -c '
        interpreter=$1 home=$2 && shift 2
        case $interpreter/ in
        /root/*)
            mkdir "$home/kept" && mount --bind "$interpreter" "$home/kept"
            mount -t tmpfs -o mode=755 tmpfs /root
            mkdir -p "$interpreter" && mount --move "$home/kept" "$interpreter" && rmdir "$home/kept"
            ;;
        esac
        HOME=$home TMPDIR=$home PYTHONDONTWRITEBYTECODE=1 exec \
            setpriv --reuid 65533 --regid 65533 --clear-groups "$@"' - "$interpreter" "$home" "$@" || failed=$?
    rm -rf "$home"
}

suite() { # place, command in front of Python, pytest's arguments
    local place=$1 made
    shift
    made=$(mktemp -d) && chmod 777 "$made"
    "$@" --attacks "$made/attacks.json" --place "$place" || failed=$?
    [ ! -e "$made/attacks.json" ] || cp "$made/attacks.json" "build/attacks/$place.json"
    rm -rf "$made"
}

failed=0
tests=(-q -p no:cacheprovider --timeout 300 -n 2 --dist loadfile tests/contract/executor)
# What a sandbox shows to a person is the same wherever it runs.
tests+=(tests/contract/test_cli_shell.py)
# So is the egress process, which no session runs in.
tests+=(tests/unit/operator/fleet/egress tests/contract/test_egress_programs.py)
for place in "${places[@]}"; do
    case $place in
    root) suite root "$python" -m pytest "${tests[@]}" "$@" ;;
    user) suite user unprivileged "$python" -m pytest "${tests[@]}" "$@" ;;
    pod) tests/cluster/run.sh attacks "$@" || failed=$? ;;
    *) echo "attacks.sh: no place is called $place" >&2 && exit 2 ;;
    esac
done
exit "$failed"
