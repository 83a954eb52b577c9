"""Files in the sandbox: walked, read, written, packed, searched and watched."""
