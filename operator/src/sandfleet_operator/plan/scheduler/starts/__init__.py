"""How starts of sandboxes go and how many may begin. Pure."""
