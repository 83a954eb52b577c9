# A real Kubernetes with gVisor; included by the Makefile.
HARNESS := PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests $(PY) -m cluster.harness

.PHONY: cluster cluster-down cluster-bucket cluster-test pod-test cluster-scale flood cluster-binaries base-image kind-up

cluster: setup ## A real Kubernetes with gVisor on this machine (root); SANDFLEET_CLUSTER_DIR says where.
	@$(HARNESS) up

cluster-down: setup ## End the cluster and leave nothing behind.
	@$(HARNESS) down

cluster-bucket: setup ## An S3 server for the cluster's pods, until Ctrl-C; it says where its address and keys are.
	@$(HARNESS) s3

cluster-test: setup ## The tests on a real cluster (that of KUBECONFIG, or one of their own).
	@tests/cluster/run.sh $(ARGS)

pod-test: setup ## The executor's contract suite in gVisor pods of a cluster.
	@tests/cluster/run.sh pods $(ARGS)

cluster-scale: setup ## The operator with hundreds of sandboxes: killed fifty times, sandboxes that come and go.
	@tests/cluster/run.sh scale $(ARGS)

flood: setup ## Two teams on a real API server, one floods with N=10000 claims; proved from the audit log (20 minutes).
	@SANDFLEET_FLOOD=$(or $(N),10000) $(PY) -m pytest -q --timeout 3600 tests/cluster/test_flood.py $(ARGS)

cluster-binaries: setup ## Build the cluster's programs into the cache.
	@$(HARNESS) binaries

base-image: setup ## A Debian base image with Python, in buildah's storage in the cache.
	@$(HARNESS) base-image

kind-up: setup ## The same with Docker and kind: two workers with gVisor (not run on the build machines).
	@tests/cluster/kind-up.sh
