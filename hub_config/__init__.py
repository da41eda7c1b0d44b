"""The composition root and the command line. Nobody imports this package."""
