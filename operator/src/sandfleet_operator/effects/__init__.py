"""What touches the world: one module for each thing outside, each third-party client imported in one place."""
