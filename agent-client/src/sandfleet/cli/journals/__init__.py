"""Commands for journals of sessions."""
