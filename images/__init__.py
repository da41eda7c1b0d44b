"""What a user may run and find there: images, datasets, the in-server kit."""
