"""Services: started, probed, logged and stopped as core/services decides."""
