"""Rules that several distributions obey. They are pure and need no other package; the session has them as well."""
