"""One CodeSandbox: what is there (observed) → what to do and what to say (plan). Nothing here has effects.

observed.py   what was seen, as values
ends.py       what ended a pod, and when the next one may start
plan.py       observed → actions and status
status.py     conditions from what was found
workspaces.py who uses a workspace that was there before
"""
