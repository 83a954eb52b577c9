"""Contexts of Jupyter kernels."""
