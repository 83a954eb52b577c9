"""The fleet's command where workspaces end with their sandboxes: its sessions cannot be suspended."""

import runpy

from sandfleet_operator.fleet.local.backend import LocalBackend

LocalBackend.can_suspend = lambda _backend, _sandbox: False  # type: ignore[method-assign] # as of ephemeral pods
runpy.run_module("sandfleet_operator.fleet", run_name="__main__")
