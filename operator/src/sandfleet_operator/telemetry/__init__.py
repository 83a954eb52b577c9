"""What the control plane says of itself: traces (the only room that imports OpenTelemetry), probes, busy loops."""
