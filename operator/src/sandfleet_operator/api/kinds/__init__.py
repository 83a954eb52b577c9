"""The custom resources of `sandfleet.io/v1alpha1` as frozen values, one table a kind (api/table.py).

Durations are seconds, sizes are bytes, CPU is cores. The schema says what a field means (charts/sandfleet/files/crds);
docs/reference/crds.md is made from it. What the schema fills in is filled in here as well, so that an object reads the
same whether or not an API server has seen it. Bounds are the schema's; what a template allows is the plan's.
"""
