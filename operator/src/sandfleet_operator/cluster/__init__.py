"""The Kubernetes API server: requests, watches, observed objects, work queues, leadership, Events, reviews.

kube_api.py    the calls that the control plane makes (protocol)
kube.py        the calls over HTTP: the only importer of the kubernetes package
store.py       the newest version of each object
reflector.py   keeps the store up to date: list, then watch
workqueue.py   keys to reconcile, and when
elector.py     leadership by a Lease
lease.py       the elector in a thread of its own
events.py      Events about sandboxes
reviews.py     who a caller is, and what it may do
node_facts.py  storage classes, and what nodes can do
tasks.py       background tasks, and turns for others in long work
clock.py       clocks and random ids
"""
