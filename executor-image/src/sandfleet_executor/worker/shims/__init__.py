"""What each Python and each shell of the session finds first: its pip, and the folder of its packages.

`bin` comes first in PATH, this folder first in PYTHONPATH.
"""
