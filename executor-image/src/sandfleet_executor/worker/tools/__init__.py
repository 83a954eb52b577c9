"""The tools of the host, as code in the session calls them: as functions of Python, and with the command `tool`."""
