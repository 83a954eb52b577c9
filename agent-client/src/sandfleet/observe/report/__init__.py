"""The report of a session or a run: one page of HTML that needs nothing else."""
