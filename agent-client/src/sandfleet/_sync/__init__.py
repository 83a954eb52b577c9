"""The same classes without `await`, on one event loop in a thread of its own."""
