#!/usr/bin/env bash
# Builds the Debian images of docs/howto/own-image.md exactly as on the page, and runs an executor in the root file system
# of each. Needs root, buildah and debootstrap, but no registry: bases are made here, and packages come from wheels that
# are fetched first.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in buildah debootstrap bwrap; do
    command -v "$program" > /dev/null || { echo "skipped: $program is not there" >&2; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root" >&2; exit 0; }
cache=${SANDFLEET_CACHE:-$HOME/.cache/sandfleet}
python=$PWD/.venv/bin/python
uv=$(scripts/uv.sh)
export UV_SYSTEM_CERTS=1 VIRTUAL_ENV=$PWD/.venv
buildah_here() {
    buildah --root "$cache/containers/storage" --runroot "$cache/containers/run" --storage-driver overlay "$@"
}
work=$(mktemp -d "$cache/own-images-XXXXXX")
containers=()
finish() {
    for one in "${containers[@]}"; do buildah_here rm "$one" > /dev/null; done
    rm -rf "$work"
}
trap finish EXIT

fetch() { # folder, Python's version, requirement…
    local to=$1 version=$2
    shift 2
    "$uv" tool run --quiet pip@25.3 download --quiet --disable-pip-version-check --only-binary :all: --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --dest "$to" "$@"
}

trixie=$cache/images/trixie-python.tar
if [ ! -e "$trixie" ]; then
    echo "own-images: making the Debian 13 base" >&2
    unshare --mount --pid --fork --kill-child --mount-proc debootstrap --variant=minbase --include=ca-certificates trixie "$work/trixie" >&2
    tar --numeric-owner -C "$work/trixie" -cf "$trixie.partial" .
    mv "$trixie.partial" "$trixie"
    rm -rf "$work/trixie"
fi
container=$(buildah_here from scratch)
buildah_here add --quiet "$container" "$trixie" / > /dev/null
buildah_here config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
buildah_here commit --quiet --rm "$container" localhost/sandfleet-base-trixie > /dev/null

# Our image, with a layer of packages of one's own.
echo 'tabulate==0.9.0' > "$work/team.txt"
LOAD=no TAG=with-packages REQUIREMENTS=$work/team.txt scripts/image.sh executor >&2
bookworm=$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests "$python" -m cluster.harness base-image | tail -1)

context=$work/context
mkdir -p "$context/wheels" "$work/index"
for member in proto executor-image; do
    "$uv" build --quiet --wheel --no-build-isolation --out-dir "$context/wheels" "$member"
done
rm -f "$context/wheels/.gitignore"
echo 'humanize==4.11.0' > "$context/requirements.txt"
fetch "$work/index" 3.11 --requirement "$context/requirements.txt"
fetch "$work/index" 3.13 --find-links "$context/wheels" 'sandfleet-executor[jupyter,search,sql,wasm]'
printf '[global]\nno-index = true\nfind-links = /index\n' > "$work/pip.conf"

# name → number of the block on the page
build() {
    "$python" - "$2" "$bookworm" > "$work/Dockerfile" << 'PYTHON'
import pathlib, re, sys
block = re.findall(r"```dockerfile\n(.*?)```", pathlib.Path("docs/howto/own-image.md").read_text(), re.S)[int(sys.argv[1])]
for name, here in {
    "docker.io/sandfleet/executor:0.1.0": "localhost/sandfleet-executor:with-packages",
    "docker.io/library/python:3.11-bookworm": sys.argv[2],
    "docker.io/library/debian:trixie-slim": "localhost/sandfleet-base-trixie",
}.items():
    block = re.sub(rf"(FROM |--from=){re.escape(name)}(?=\s)", rf"\g<1>{here}", block)
print(block)
PYTHON
    echo "own-images: building $1" >&2
    buildah_here bud --quiet --isolation chroot --layers=false --pull-never --volume "$work/index:/index:ro" \
        --volume "$work/pip.conf:/etc/pip.conf:ro" --file "$work/Dockerfile" --tag "localhost/sandfleet-own-$1" "$context" > /dev/null
}
build from-ours 0
build with-kernel 1
build copied 2
build made 3

roots=
for name in with-packages from-ours with-kernel copied made; do
    image=localhost/sandfleet-own-$name
    [ "$name" = with-packages ] && image=localhost/sandfleet-executor:with-packages
    container=$(buildah_here from --pull-never "$image")
    containers+=("$container")
    roots+="$name=$(buildah_here mount "$container") "
done
SANDFLEET_ROOTS=$roots "$python" -m pytest -q tests/images "$@"
