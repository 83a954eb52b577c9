"""A Jupyter kernel whose code runs in a sandbox: `sandfleet jupyter install` makes it known to Jupyter."""
