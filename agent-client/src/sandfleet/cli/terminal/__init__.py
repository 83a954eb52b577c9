"""The person's terminal: what it is shown, what is typed to leave it, and Ctrl-C."""
