"""What runs, in which order: the Prefect flows and the command line."""
