"""Ours, also where an installed distribution brings a package of this name."""
