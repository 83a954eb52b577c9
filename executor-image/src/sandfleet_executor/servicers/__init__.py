"""Messages of the API to values and back, nothing else."""
