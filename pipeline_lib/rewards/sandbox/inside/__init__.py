"""What runs in the sandbox: the standard library alone, imported there as the package `inside`."""
