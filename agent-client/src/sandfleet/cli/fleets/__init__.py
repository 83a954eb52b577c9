"""Commands about fleets: serve one, simulate one, list its pools."""
