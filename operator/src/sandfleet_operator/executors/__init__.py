"""Calls of the control plane to executors, and what they trust each other by: certificates, tokens, the handshake.

contact.py       calls to the executor of a pod, over TLS
handshake.py     the first contact with a new pod's executor
services.py      polls executors for their services
service_list.py  what an executor reports of its services, checked
pod_client.py    calls of the fleet on Kubernetes to the executors of its pods
client.py        calls of the fleet on one machine to its executors
tokens.py        capability tokens and the keys that sign them
authority.py     the certificate authority
signing.py       the Secret with the authority and the token keys
"""
