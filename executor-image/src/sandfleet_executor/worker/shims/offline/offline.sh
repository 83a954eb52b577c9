# Runs the program of the same name: without retries where the session has no network, and says that if it fails.
program=${0##*/} own=${0%/*} real='' rest=$PATH:
while [ -n "$rest" ]; do
    folder=${rest%%:*} rest=${rest#*:}
    if [ "$folder" != "$own" ] && [ -x "$folder/$program" ]; then real=$folder/$program && break; fi
done
[ -n "$real" ] || { echo "$program: command not found" >&2 && exit 127; }

# A proxy leads to the hosts of an egress list; a route of another interface than the loopback leads anywhere.
has_network() {
    [ -z "$HTTPS_PROXY$https_proxy" ] || return 0
    while read -r line; do
        case ${line%%[[:space:]]*} in Iface | lo) ;; *) return 0 ;; esac
    done </proc/net/route
    while read -r line; do
        case ${line##*[[:space:]]} in lo) ;; *) return 0 ;; esac
    done </proc/net/ipv6_route
    return 1
} 2>/dev/null

if has_network; then exec "$real" "$@"; fi
npm_config_fetch_retries=0 npm_config_update_notifier=false CARGO_NET_RETRY=0 GOTOOLCHAIN=local "$real" "$@"
code=$?
[ "$code" != 0 ] || exit 0
case "$program ${1-}" in
'npm install' | 'npm i' | 'npm ci' | 'npm add' | 'npm update' | 'npm view' | 'npm search') host=registry.npmjs.org ;;
'cargo add' | 'cargo install' | 'cargo update' | 'cargo fetch' | 'cargo search') host=index.crates.io ;;
'go get' | 'go install' | 'go mod') host=proxy.golang.org ;;
apt*' update' | apt*' install' | apt*' upgrade' | apt*' download' | apt*' source')
    echo "cannot $program $1: this session has no network, and its system is read-only; put such packages into its image" >&2
    exit "$code"
    ;;
*) exit "$code" ;;
esac
echo "cannot $program $1 from a registry: this session has no network; put files into the workspace from outside" \
    "(sandbox.files.upload), or create the sandbox with egress=[\"$host\"]" >&2
exit "$code"
