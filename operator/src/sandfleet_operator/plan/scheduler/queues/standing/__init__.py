"""Where a waiting claim stands: why it waits, in words, and when its turn may come. Pure."""
