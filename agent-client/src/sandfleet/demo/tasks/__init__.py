"""The five agents' tasks: real input, a written script for each, and a check on the host that does not trust the script."""
