"""What a sandbox's pod is made of. Nothing here has effects.

merge.py          template and spec → the values that count, or a refusal
podspec.py        those values → the pod's manifest, and the ConfigMap of keys that it mounts
delivery.py       whether the executor is in the image or comes beside it
volume.py         the workspace's volume claim
placement.py      node selectors and tolerations that the API server accepts
networkpolicy.py  default deny, and policies that open egress
openings.py       which policies of others open a sandbox
egress.py         egress lists as sets of addresses and ports
egress_probe.py   whether a sandbox reaches what its list opens
names.py          names, labels and annotations
"""
