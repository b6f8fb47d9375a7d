"""The one HTTP application."""
