"""Messages of the API as values, and values as messages."""
