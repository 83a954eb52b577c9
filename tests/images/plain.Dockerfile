# Debian as it is, and a user: the executor's whole contract is tried beside it (tests/contract/executor/pod.py).
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN useradd --create-home --uid 4321 dev
