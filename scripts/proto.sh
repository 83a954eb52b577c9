#!/usr/bin/env bash
# Generates the Python code of the APIs into proto/gen, or, with a folder as argument, there (to compare).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-proto/gen}
mkdir -p "$out"
mapfile -t files < <(cd proto && find sandfleet_api -name '*.proto' | LC_ALL=C sort)
.venv/bin/python -m grpc_tools.protoc -I proto \
    --plugin=protoc-gen-mypy_grpc=.venv/bin/protoc-gen-mypy_grpc \
    --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" --mypy_grpc_out="$out" "${files[@]}"
touch "$out/sandfleet_api/py.typed"
find "$out/sandfleet_api" -type d -exec touch {}/__init__.py \;
