"""Values to text for a person and to JSON for a program; nothing here prints."""
