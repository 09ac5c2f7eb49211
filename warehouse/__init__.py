"""What rlsift remembers: small tables and views in DuckDB, bulk rows in Parquet."""

from warehouse.errors import WarehouseError
from warehouse.warehouse import Warehouse

__all__ = ["Warehouse", "WarehouseError"]
