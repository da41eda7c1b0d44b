"""Decides when a server is idle, says why, and gives its devices back."""
