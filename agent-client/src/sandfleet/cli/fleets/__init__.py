"""Commands about fleets: serve one, list its pools."""
