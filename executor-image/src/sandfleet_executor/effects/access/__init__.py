"""Who may call what: tokens checked with keys, and the executor's own identity."""
