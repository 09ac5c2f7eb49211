"""What a step raises when a user can mend the cause. Imports nothing, so that the command line can catch it."""


class StepFailed(RuntimeError):
    """A step could not do its work. The message says which, what happened, and the remedy or where to look."""


class ServerGone(StepFailed):
    """Prefect's server does not answer any more. Prefect would tell it of each event for a minute before it exits."""
