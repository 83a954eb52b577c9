"""Policies that come with the loop: `scripted` follows a script, `openai` asks a model."""
