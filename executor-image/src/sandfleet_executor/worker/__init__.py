"""What runs inside the session namespace.

Nothing here may import the rest of the executor: only this folder is mounted there. It needs the standard library and IPython.
"""
