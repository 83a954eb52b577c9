"""The session: it joins contexts, commands, services and packages, and holds the limits."""
