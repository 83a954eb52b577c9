#!/usr/bin/env bash
# Builds the images with buildah, without Docker: image.sh [executor|operator|strangers …]. BASE_IMAGE names another base than the
# one made here. An image is built only if its sources have changed. With a running test cluster it is also loaded there.
# REQUIREMENTS names a file of packages to add to the executor's image; set TAG to something else than dev then.
# LOAD=no leaves a running test cluster alone; LOAD=yes loads an image of another TAG into it, too, under that tag alone.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SANDFLEET_CACHE:-$HOME/.cache/sandfleet}
python=$PWD/.venv/bin/python
harness() { PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests "$python" -m cluster.harness "$@"; }
buildah_here() {
    buildah --root "$cache/containers/storage" --runroot "$cache/containers/run" --storage-driver overlay "$@"
}

base=${BASE_IMAGE:-$(harness base-image | tail -1)}
uv=$(scripts/uv.sh)
export UV_SYSTEM_CERTS=1 VIRTUAL_ENV=$PWD/.venv
# Leftovers of a killed run: its folder, and its container, which would hold an image for ever.
find "$cache" -maxdepth 1 -name 'image-*' -mmin +600 -exec rm -rf {} +
places=$cache/containers/storage/overlay-containers
mkdir -p "$places"
find "$places" -mindepth 1 -maxdepth 1 -type d -mmin +600 -printf '%f\n' \
    | while read -r old; do buildah_here rm "$old" > /dev/null || true; done
mkdir -p "$cache/images"
work=$(mktemp -d "$cache/image-XXXXXX")
trap 'rm -rf "$work"' EXIT

tag=${TAG:-dev}
requirements=${REQUIREMENTS:-/dev/null}
if [ "$requirements" != /dev/null ] && [ "$tag" = dev ]; then
    echo "cannot build: with REQUIREMENTS the image needs a TAG of its own, dev is what the tests run" >&2
    exit 2
fi

load() { # name, version: into the test cluster, if one runs and lacks the image
    case ${LOAD:-$tag} in yes | dev) ;; *) return 0 ;; esac
    harness running || return 0
    local archive=$cache/images/$1-$2.tar lock
    # The image of another tag is of no use to the next cluster.
    [ "$tag" = dev ] || archive=$work/$1-loaded.tar
    exec {lock}> "$cache/images/$1.lock"
    flock "$lock"
    if ! harness has-image "localhost/$1:$2"; then
        # Kept for the next cluster, which is a new one; one file for each name.
        if [ ! -e "$archive" ]; then
            buildah_here push --quiet "localhost/$1:$2" "docker-archive:$work/$1.tar:localhost/$1:$2"
            [ "$tag" != dev ] || rm -f "$cache/images/$1"-*.tar
            mv "$work/$1.tar" "$archive"
        fi
        echo "image: loading localhost/$1:$2 into the cluster" >&2
        harness load-image "$archive"
    fi
    # The last name is the one in chart and examples.
    local names=("localhost/$1:$tag")
    case $tag-$1 in dev-*-executor | dev-*-operator) names+=("docker.io/sandfleet/${1#sandfleet-}:0.1.0") ;; esac
    harness tag-image "localhost/$1:$2" "${names[@]}"
    exec {lock}>&-
}

forget() { # name: all versions in buildah's storage but the newest three, and those that a container still has
    buildah_here images --format '{{.Name}}:{{.Tag}}' --filter "reference=localhost/$1" | sed -n '/:[0-9a-f]\{12\}$/p' | tail -n +4 \
        | while read -r old; do buildah_here rmi "$old" > /dev/null || echo "image: keeping $old" >&2; done
}

build() { # folder, member distributions
    local folder=$1 name=sandfleet-${1%-image} version context
    shift
    local extra=/dev/null
    [ "$folder" = executor-image ] && extra=$requirements
    version=$({ echo "$base"; cat "$extra" "$folder/Dockerfile" "$folder/requirements.lock"; git ls-files --cached --others --exclude-standard \
        proto/gen proto/rules "$folder/src" | LC_ALL=C sort | xargs sha256sum; } | sha256sum | cut -c1-12)
    local image=localhost/$name:$version
    if ! buildah_here inspect --type image "$image" > /dev/null 2>&1; then
        context=$work/$folder
        mkdir -p "$context/wheels" "$context/extra"
        "$uv" tool run --quiet pip@25.3 download --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
            --dest "$context/wheels" --requirement "$folder/requirements.lock"
        for member in "$@"; do
            "$uv" build --quiet --wheel --no-build-isolation --out-dir "$context/wheels" "$member"
        done
        rm -f "$context/wheels/.gitignore"
        if [ -s "$extra" ]; then
            cp "$extra" "$context/extra/requirements.txt"
            # Added packages do not change the versions of the image's own.
            sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' "$folder/requirements.lock" > "$work/ours.txt"
            "$uv" tool run --quiet pip@25.3 download --quiet --disable-pip-version-check --only-binary :all: \
                --dest "$context/extra" --constraint "$work/ours.txt" --requirement "$extra"
        fi
        echo "image: building $image" >&2
        buildah_here bud --quiet --isolation chroot --layers=false --build-arg "BASE_IMAGE=$base" \
            --file "$folder/Dockerfile" --tag "$image" "$context" >&2
        forget "$name"
    fi
    buildah_here tag "$image" "localhost/$name:$tag"
    load "$name" "$version"
    buildah_here images --format "{{.Name}}:{{.Tag}}  {{.Size}}" "$image"
}

strangers() { # images that know nothing of the executor, for the tests of such: tests/images/*.Dockerfile
    local file name version
    for file in tests/images/*.Dockerfile; do
        name=sandfleet-$(basename "$file" .Dockerfile)
        version=$({ echo "$base"; cat "$file"; } | sha256sum | cut -c1-12)
        if ! buildah_here inspect --type image "localhost/$name:$version" > /dev/null 2>&1; then
            echo "image: building localhost/$name:$version" >&2
            buildah_here bud --quiet --isolation chroot --layers=false --build-arg "BASE_IMAGE=$base" \
                --file "$file" --tag "localhost/$name:$version" tests/images >&2
            forget "$name"
        fi
        buildah_here tag "localhost/$name:$version" "localhost/$name:$tag"
        load "$name" "$version"
    done
}

# Side by side: each build waits for a disk or for one core most of the time.
made=()
for each in ${*:-executor operator strangers}; do
    case $each in
        executor) build executor-image proto executor-image & ;;
        operator) build operator proto operator & ;;
        strangers) strangers & ;;
        *) echo "cannot build $each: images are executor, operator and strangers" >&2; exit 2 ;;
    esac
    made+=("$!")
done
failed=0
for one in "${made[@]}"; do wait "$one" || failed=1; done
exit "$failed"
