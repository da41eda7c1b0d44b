"""Service `berth`: pages and REST over the book. Reads and writes the book in threads, never on the event loop."""
