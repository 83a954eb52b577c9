"""NetworkPolicies on the test cluster's node: a pure model, the nftables that say the same, and what keeps them up to date."""
