"""What hangs on a sandbox: one file for each noun of the API."""
