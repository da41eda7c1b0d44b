"""Puts a lease on a device and keeps it true: profiles, placement, runtimes, the Hub's spawner, the agent."""
