"""What lies under a root: what no run needs, where files and records disagree, what can be taken elsewhere."""
