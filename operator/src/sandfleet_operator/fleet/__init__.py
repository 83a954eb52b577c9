"""The fleet service: inventory, loop, gRPC servicer and the backends below it."""
