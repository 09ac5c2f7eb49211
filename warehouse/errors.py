"""The one error that users of the warehouse see."""


class WarehouseError(RuntimeError):
    """What went wrong with the warehouse, in words for its user."""
