#!/usr/bin/env bash
# Plays a new user: a clone of HEAD in a new folder, an empty HOME, an empty cache, and README's commands.
#   fresh.sh [WAY…]   tmp path root user nouserns columns locale sigint noterm readonly; all of them without an argument
# COMMANDS="make test" runs these instead of README's. Whatever a way has made is deleted afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
python=$(dirname "$(dirname "$(realpath "$(scripts/python.sh)")")")
commands=${COMMANDS:-'make demo ARGS="--sessions 8"
.venv/bin/sandfleet doctor
make test'}
# Where no sandbox can start, each of these has to fail and to say why.
commands_without='says() { if "${@:2}" >said.txt 2>&1; then exit 1; fi; cat said.txt; grep -q "$1" said.txt; }
says "cannot make the session namespace" make demo ARGS="--sessions 2"
says "MISSING session namespace" .venv/bin/sandfleet doctor
make pure
says "cannot run tests/contract on this machine: session namespace" make smoke'
ways=("$@")
[ $# -gt 0 ] || ways=(tmp path root user nouserns columns locale sigint noterm readonly)

clone() { # folder
    git clone --quiet --no-local "file://$repository" "$1"
}

played() { # way, folder, command in front of bash…
    local way=$1 folder=$2 home status=0 begun=$SECONDS orders=$commands
    shift 2
    [ "$way" != nouserns ] || orders=$commands_without
    home=$(mktemp -d) && chmod 755 "$home"
    clone "$folder/sandfleet"
    case $way in user | nouserns) chown -R 65533:65533 "$folder" "$home" ;; esac
    # The folder itself is read-only to the user; what setup and tests make stands in folders that are there before.
    if [ "$way" = readonly ]; then
        mkdir -p "$folder/sandfleet"/{.venv,.pytest_cache,.mypy_cache,.ruff_cache,.hypothesis,.import_linter_cache,build}
    fi
    env -i HOME="$home" PATH="$PATH" LANG="${LANG:-C.UTF-8}" TERM="${TERM:-dumb}" "${settings[@]}" "$@" bash -euc \
        "cd '$folder/sandfleet'; $orders" >"$folder/output.txt" 2>&1 </dev/null || status=$?
    if [ "$status" = 0 ]; then
        echo "fresh: $way: green after $((SECONDS - begun)) s: $(grep -E '[0-9]+ passed' "$folder/output.txt" | tr '\n' ';')"
    else
        echo "fresh: $way: exit $status after $((SECONDS - begun)) s; the last lines:"
        tail -n 40 "$folder/output.txt"
        failed=1
    fi
    rm -rf "$folder" "$home"
}

failed=0
for way in "${ways[@]}"; do
    settings=()
    front=()
    folder=$(mktemp -d) && chmod 755 "$folder"
    case $way in
    tmp | root) ;;
    path) folder=$folder/"für einen Nutzer" && mkdir "$folder" ;;
    columns) settings=(COLUMNS=40) ;;
    locale) settings=(TZ=Asia/Kathmandu LC_ALL=C LANG=C) ;;
    sigint) front=(bash -c 'trap "" INT; exec "$@"' -) ;;
    noterm) settings=(TERM=) front=(setsid --wait) ;;
    readonly) front=(bash -c 'chmod a-w . 2>/dev/null; exec "$@"' -) ;;
    user) front=("$repository/scripts/unprivileged.sh" "$python") ;;
    nouserns) front=("$repository/scripts/without_user_namespaces.sh" "$repository/scripts/unprivileged.sh" "$python") ;;
    *) echo "fresh.sh: no way is called $way" >&2 && exit 2 ;;
    esac
    played "$way" "$folder" "${front[@]}"
done
exit "$failed"
