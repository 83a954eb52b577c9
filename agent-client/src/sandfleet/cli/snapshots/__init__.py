"""`sandfleet snapshot`: sessions that were saved whole."""
