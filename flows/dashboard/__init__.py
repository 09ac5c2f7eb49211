"""What `rlsift dashboard` keeps running on one machine, and what it registers there."""
