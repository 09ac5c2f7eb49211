"""What `rlsift watch` sees of a run, and how it draws that."""
