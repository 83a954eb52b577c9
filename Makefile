# Each target is a line or two; CI calls the same names.
.DEFAULT_GOAL := help
PY := .venv/bin/python
DIST := dist

include tests/cluster/cluster.mk

.PHONY: help setup demo test test-all pure smoke contract slowest flakes tools fresh nightly attacks cells conformance jupyterlab model completion size lint types proto sync lock image own-images wheels wheels-test docs bench clean

help: ## This list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: ## The environment in .venv (done by every other target on its own).
	@scripts/setup.sh

demo: setup ## Many agent sessions solve real tasks in isolated sandboxes.
	@$(PY) -m sandfleet demo $(ARGS)

# Some machines set it: each Python process would then compile its sources and the tests anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(PY) -m pytest -q
# An argument may select no test of a lane.
NONE_IS_FINE = $(if $(ARGS),|| [ $$? = 5 ])

test: setup ## The fast suite: lint, types, pure tests and a smoke lane of the contract tests (5 minutes).
	@HYPOTHESIS_PROFILE=fast $(MAKE) --no-print-directory -j 3 lint types pure
	@$(MAKE) --no-print-directory smoke

test-all: test contract ## Everything that needs no cluster.

pure: setup ## The pure tests: no program, no socket.
	@$(PYTEST) -n 2 --dist loadfile --lane pure $(ARGS) tests/unit tests/transition tests/chart $(NONE_IS_FINE)

smoke: setup ## A part of the contract tests, with what it touches of RPCs, outcomes and calls of the client.
	@$(PYTEST) -n 2 --dist loadfile --lane smoke $(if $(ARGS),,--covers) $(ARGS) tests/contract $(NONE_IS_FINE)

contract: setup ## All other tests that need no cluster: of contracts, with processes, or with much to compute.
	@$(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder --lane contract $(ARGS) tests/contract tests/transition tests/unit tests/chart $(NONE_IS_FINE)

slowest: setup ## The tests that took longest in the last runs.
	@$(PY) scripts/slowest.py $(ARGS)

flakes: setup ## Run `make test`'s tests N=20 times with both cores kept busy, and print which failed how often (LANES="pure smoke").
	@$(PY) scripts/flakes.py $(or $(N),20) $(or $(LANES),pure smoke) $(if $(ARGS),-- $(ARGS))

tools: setup ## Programs of others that tests use: Debian's, and those built from Go modules into the cache.
	@scripts/tools.sh

fresh: ## Play a new user in a clean clone, an empty home and an empty cache (WAYS="tmp path root user …").
	@scripts/fresh.sh $(WAYS)

nightly: setup ## What is too long for CI: pods, scale, joint 300, cells, attacks, conformance, wheels, flood, flakes (hours).
	@scripts/nightly.sh $(ARGS)

conformance: setup ## Suites of agent frameworks against a sandbox (PyPI).
	@tests/conformance/run.sh $(ARGS)

joint: setup ## Operator and fleet together through N random stories (tests/transition/joint), about one a second.
	@SANDFLEET_EXAMPLES=$(or $(N),1000) $(PY) -m pytest -q --timeout 3600 tests/transition/joint $(ARGS)

attacks: setup ## Each attack in a line, and whether it held: as root, without root, in gVisor pods (PLACES="root user pod").
	@tests/contract/executor/attacks.sh $(or $(PLACES),root user pod) $(if $(ARGS),-- $(ARGS))

cells: setup ## N random cells of each language in a sandbox and in the language itself (10,000: some minutes).
	@SANDFLEET_CELLS=$(or $(N),10000) $(PY) -m pytest -q --timeout 3600 tests/contract/executor/test_generated_cells.py $(ARGS)

model: setup ## spin searches all states of the claim protocol (tests/model), about a minute.
	@scripts/debian.sh spin spin gcc libc6-dev
	@$(PY) -m pytest -q tests/model $(ARGS)

jupyterlab: setup ## A notebook in JupyterLab's own page, in headless Chromium, which it installs (PyPI, apt).
	@scripts/debian.sh chromium chromium
	@tests/conformance/run.sh jupyterlab $(if $(ARGS),-- $(ARGS))

completion: setup ## tries completion of the command in bash, zsh and fish, and installs the two.
	@scripts/debian.sh zsh zsh && scripts/debian.sh fish fish
	@$(PY) -m pytest -q tests/contract/test_completion.py $(ARGS)

lint: setup ## ruff, import contracts, buf.
	@.venv/bin/ruff check -q . && .venv/bin/ruff format -q --check .
	@said=$$(.venv/bin/lint-imports --no-logo) || { echo "$$said"; exit 1; }
	@cd proto && ../.venv/bin/buf lint
	@$(PY) scripts/crds.py --check && $(PY) scripts/reference.py --check && $(PY) scripts/chart.py --check
	@$(PY) scripts/dashboard.py --check && $(PY) scripts/attacks.py --check
	@$(PY) scripts/sync.py --check && $(PY) scripts/python_reference.py --check

types: setup ## mypy, strict.
	@.venv/bin/mypy --no-error-summary

proto: setup ## Generate the code of the APIs again.
	@scripts/proto.sh

sync: setup ## Generate the sync client from the async one.
	@$(PY) scripts/sync.py

docs: ## The docs as a site with a search, in dist/site (Sphinx comes from the package index once).
	@test -x .venv/docs/bin/sphinx-build || { python3 -m venv .venv/docs && .venv/docs/bin/pip install --quiet --require-hashes --requirement docs/site/requirements.lock; }
	@.venv/docs/bin/sphinx-build --quiet --fail-on-warning --keep-going --builder html --conf-dir docs/site . $(DIST)/site

lock: setup ## Write requirements.lock anew from pyproject.toml.
	@scripts/lock.sh

image: setup ## The images of executor and control plane, with buildah (root).
	@scripts/image.sh

own-images: setup ## The images of docs/howto/own-image.md, built and run (root, buildah, debootstrap).
	@scripts/own-images.sh $(ARGS)

wheels: setup ## Build the wheels of all distributions into dist/ (DIST=…), with the versions that were tested.
	@for part in proto executor-image operator agent-client .; do \
	    (cd $$part && $(CURDIR)/$(PY) -m hatchling build -t wheel -d $(abspath $(DIST))) || exit 1; done
	@sed -n 's/^\([A-Za-z0-9._-]*==[^\\]*\).*/\1/p' requirements.lock > $(DIST)/constraints.txt

wheels-test: setup ## Install the built wheels into empty environments and run README's screen (3 minutes).
	@$(PY) -m pytest -q --timeout 400 tests/wheels $(ARGS)

bench: setup ## Measure, beside baselines of the same run.
	@$(PY) tests/bench/run.py $(ARGS)

size: setup ## Count lines of code by package and room; AT=REVISION shows the difference to it.
	@$(PY) scripts/size.py $(AT)

clean: ## Remove what setup and tests made.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output dist
