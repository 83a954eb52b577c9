"""A discrete-event simulation of the fleet: the real scheduler over loads from a file, in simulated time."""
