"""Short shows of one thing each: `python examples/show.py NAME`."""
