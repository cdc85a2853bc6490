"""The user's model module, and what is made of it."""
