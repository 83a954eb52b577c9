"""The store of executions on disk: written, read and replayed."""
