"""Traces of the control plane: the only room that imports OpenTelemetry."""
