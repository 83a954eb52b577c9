"""Reviews: what was approved before in a session, and the rules that approve by themselves."""
