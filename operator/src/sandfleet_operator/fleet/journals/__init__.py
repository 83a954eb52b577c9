"""The fleet as a witness of what executors say of their journals (docs/dev/adr/0052-countersigned-heads.md)."""
