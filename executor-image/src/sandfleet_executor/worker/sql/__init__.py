"""The context of SQL: DuckDB in a process of its own."""
