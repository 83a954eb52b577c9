"""Values to messages of the API and back."""
