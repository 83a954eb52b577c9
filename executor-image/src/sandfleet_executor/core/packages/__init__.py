"""Packages: the declared ones and the installed ones, as checked values."""
