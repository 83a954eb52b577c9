"""The gateway: carries connections to executors for clients that cannot reach the addresses of pods."""
