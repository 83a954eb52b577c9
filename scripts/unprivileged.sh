#!/usr/bin/env bash
# Runs a command as a user without rights: unprivileged.sh INTERPRETER COMMAND… (root). The home of root is closed to
# it, up to the folder of the interpreter.
set -euo pipefail
exec unshare --mount --propagation private bash -euo pipefail -c '
    interpreter=$1 && shift
    case $interpreter/ in
    /root/*)
        kept=$(mktemp -d) && mount --bind "$interpreter" "$kept"
        mount -t tmpfs -o mode=755 tmpfs /root
        mkdir -p "$interpreter" && mount --move "$kept" "$interpreter" && rmdir "$kept"
        ;;
    esac
    exec setpriv --reuid 65533 --regid 65533 --clear-groups "$@"' - "$@"
