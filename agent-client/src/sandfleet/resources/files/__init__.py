"""Files of a sandbox: reading and writing, watching, copying whole directories."""
