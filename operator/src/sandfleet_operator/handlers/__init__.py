"""The Kopf process: what is declared is watched, planned and made so.

watch.py      Kopf's handlers: each event goes into the store and wakes the keys that it concerns
routes.py     which keys those are (pure)
operator.py   one operator: store, queue, reconciler, housekeeping, resync
run.py        the process: settings, leadership, Kopf, health
health.py     /healthz and /readyz
"""
