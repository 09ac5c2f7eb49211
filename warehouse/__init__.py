"""What rlsift remembers: small tables and views in DuckDB, bulk rows in Parquet."""

from warehouse.asking import LimitReached, Limits
from warehouse.errors import WarehouseError
from warehouse.warehouse import Warehouse

__all__ = ["LimitReached", "Limits", "Warehouse", "WarehouseError"]
