"""Who may call what, decided from a token's claims."""
