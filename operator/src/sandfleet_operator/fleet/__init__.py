"""The fleet service: its gRPC servicer, the driver of the scheduler's decisions, and where sandboxes run."""
