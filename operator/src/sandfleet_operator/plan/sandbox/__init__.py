"""Decides one round for one CodeSandbox: what the operator observed → actions and status. Nothing here has effects.

observed.py         what the operator has seen, as values
kept.py             what the stores keep of an object
plan.py             observed → plan: the story of a round
actions.py          what a plan asks for
admission.py        whether its queue lets the sandbox have a pod
pod.py              the pod of a sandbox that is to run: create, adopt, greet
dependencies.py     policies, keys and the volume of the workspace
restarts.py         why a pod ended, and when the next one may start
status.py           findings → conditions
parked.py           whether a snapshot is the session of a suspended sandbox
services/           when an executor is asked for its services, and what the status says of them
workspaces.py       which sandboxes and pods use a workspace
"""
