"""NetworkPolicies on the test cluster's node: a pure model, its nftables, and a process that keeps them current."""
