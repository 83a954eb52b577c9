#!/usr/bin/env bash
# Two workers with gVisor in kind. Needs docker, kind, kubectl and go. The build machines only lint this script.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in docker kind kubectl go; do
    command -v "$tool" >/dev/null || { echo "cannot start kind: $tool is missing" >&2; exit 1; }
done

name=sandfleet
kind get clusters | grep -qx "$name" || kind create cluster --config kind-config.yaml --wait 3m

# The same version as on the build machines: the module's go.mod and go.sum pin it.
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
(
    cd tests/cluster/go/gvisor
    export CGO_ENABLED=0 GOOS=linux
    go build -trimpath -o "$built/runsc" gvisor.dev/gvisor/runsc
    go build -trimpath -o "$built/containerd-shim-runsc-v1" gvisor.dev/gvisor/shim
)
printf '[runsc_config]\nplatform = "systrap"\n' >"$built/runsc.toml"

for node in $(kind get nodes --name "$name" | grep worker); do
    docker exec "$node" mkdir -p /etc/sandfleet
    docker cp "$built/runsc.toml" "$node:/etc/sandfleet/runsc.toml"
    docker cp "$built/runsc" "$node:/usr/local/bin/runsc"
    docker cp "$built/containerd-shim-runsc-v1" "$node:/usr/local/bin/containerd-shim-runsc-v1"
    docker exec "$node" systemctl restart containerd
done

kubectl --context "kind-$name" apply -f - <<'YAML'
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
scheduling:
  nodeSelector: {sandfleet.io/sandboxes: "true"}
YAML

PYTHONPATH=tests .venv/bin/python -m cluster.harness testkit-image "$built/testkit.tar"
kind load image-archive --name "$name" "$built/testkit.tar"
# Also images of ours, if the arguments name some.
for image in "$@"; do
    kind load docker-image --name "$name" "$image"
done
echo "ready: kubectl --context kind-$name get nodes"
