"""The Kopf process: what is declared is watched, planned and applied.

kopf_watch.py   Kopf's handlers: each event goes into the store and wakes the keys that it concerns
routes.py       which keys those are (pure)
reconcile.py    one key's round: observe → plan → apply
apply.py        carries out what a plan asks for
housekeeping.py policies of namespaces and templates, published keys, claims that were left behind
operator.py     one operator: store, queue, reconciler, housekeeping, resync
run.py          the process: settings, leadership, Kopf, health
health.py       /healthz and /readyz
"""
