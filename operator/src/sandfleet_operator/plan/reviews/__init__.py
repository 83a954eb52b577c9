"""Reviews of what reviewed sandboxes are asked to run: what was approved before, and the rules that approve by themselves."""
