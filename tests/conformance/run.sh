#!/usr/bin/env bash
# The suites of frameworks against adapters of ours: run.sh [suite...] [-- arguments for pytest]. Whole suites write
# their rows of docs/reference/integrations.md.
# Each has a virtual environment of its own in the cache, made when its requirements change.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/conformance
export UV_SYSTEM_CERTS=1
# What was published later is not looked at, so that a suite is the same everywhere.
published=2026-11-20
declare -A sdists=(
    [openai_agents]="openai-agents==0.24.0 --hash=sha256:4b4b285f4fed81fdf1b4ac426a9101658d9cd29b4fb1aaeee18f639b77e704e3"
    [smolagents]="smolagents==1.26.0 --hash=sha256:4ec92313265f9cfbcabfc88e192b4bc4505f8475dc5f33dc872062fc567037bd"
    [swerex]="swe-rex==1.4.0 --hash=sha256:14f8a24c49a63f9e251340b1109ac75a4aacbaece410f8599209de9bfca843c0"
)

environment() { # suite → the folder of its virtual environment, with the sdist's tests below `suite`
    local name=$1 uv folder
    folder=${SANDFLEET_CACHE:-$HOME/.cache/sandfleet}/conformance/$name-$(
        cat pyproject.toml $here/run.sh "$here/$name/requirements.in" | sha256sum | cut -c1-16
    )
    if [ ! -e "$folder/.complete" ]; then
        echo "conformance: making the environment of $name" >&2
        uv=$(scripts/uv.sh)
        rm -rf "$folder"
        "$uv" venv --quiet --seed --python "$(command -v python3.11 || command -v python3)" "$folder" >&2
        VIRTUAL_ENV=$folder "$uv" pip install --quiet --compile-bytecode --exclude-newer $published \
            -r pyproject.toml -r "$here/$name/requirements.in" >&2
        if [ -n "${sdists[$name]:-}" ]; then
            echo "${sdists[$name]}" >"$folder/sdist.txt"
            "$folder/bin/python" -m pip download --quiet --no-deps --no-binary :all: --require-hashes \
                -r "$folder/sdist.txt" --dest "$folder/sdist" >&2
            mkdir -p "$folder/sources/suite"
            tar -xzf "$folder"/sdist/*.tar.gz -C "$folder/sources/suite" --strip-components 1
        fi
        touch "$folder/.complete"
    fi
    echo "$folder"
}

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do suites+=("$1") && shift; done
[ "${1:-}" = -- ] && shift
# A part of a suite writes no row of the page.
whole=$([ $# -gt 0 ] || echo yes)
[ ${#suites[@]} -gt 0 ] || suites=(langchain inspect swerex smolagents gymnasium openai_agents pydantic_ai mini_swe_agent google_adk ag2)
failed=0
for name in "${suites[@]}"; do
    folder=$(environment "$name")
    echo "conformance: $name"
    PYTHONDONTWRITEBYTECODE=1 \
        PYTHONPATH=agent-client/src:executor-image/src:operator/src:proto/gen:$folder/sources \
        "$folder/bin/python" -m pytest -q -c $here/pytest.ini --rootdir "$here/$name" --confcutdir "$here/$name" \
        "$here/$name" --junitxml "$folder/report.xml" "$@" || failed=1
    if [ -n "$whole" ] && [ "$name" != jupyterlab ]; then
        "$folder/bin/python" $here/row.py "$name" "$folder/report.xml"
    fi
done
exit $failed
