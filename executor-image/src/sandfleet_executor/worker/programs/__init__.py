"""Programs that the executor runs in the session as commands of its own."""
