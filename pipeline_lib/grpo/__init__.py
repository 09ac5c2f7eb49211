"""GRPO on selected prompts: batch filling, loss, trainer, checkpoints, and the worker process."""
