"""How starts of sandboxes go, how many may begin, and how many a pool needs to have begun. Pure."""
