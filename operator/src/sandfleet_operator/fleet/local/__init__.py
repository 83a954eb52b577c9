"""The fleet on one machine: executor processes below one executor host."""
