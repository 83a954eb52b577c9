"""The sets of tasks that are shipped: one TOML file each."""
