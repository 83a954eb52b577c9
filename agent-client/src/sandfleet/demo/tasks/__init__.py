"""The five agents' tasks: real input, a written script, and a check on the host that does not trust the script."""
