"""The words of the control plane as frozen values. Nothing here has effects."""
