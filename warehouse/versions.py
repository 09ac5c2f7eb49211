"""Tables and views of this code in a database: made new, brought up from an older version, refused where newer.

schema.sql is what a new database gets, and what the last of migrations/NNNN_*.sql leads to. Each migration is one
transaction, its number that of the version which it makes.
"""

import hashlib
from pathlib import Path

import duckdb

from warehouse.comments import column_comments
from warehouse.errors import WarehouseError
from warehouse.tables import SCHEMA
from warehouse.totals import gather_finished

HERE = Path(__file__).parent
MIGRATIONS = {int(path.name[:4]): path.read_text() for path in sorted((HERE / "migrations").glob("*.sql"))}
SCHEMA_VERSION = max(MIGRATIONS)
TABLES_AND_VIEWS = SCHEMA + (HERE / "views.sql").read_text()
DEFINITION = TABLES_AND_VIEWS + column_comments(TABLES_AND_VIEWS)
DEFINITION_SHA256 = hashlib.sha256(DEFINITION.encode()).hexdigest()


def is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether tables and views are this code's. Raises WarehouseError where newer code has made them."""
    meta = _meta(connection)
    return meta == {"schema_version": str(SCHEMA_VERSION), "definition_sha256": DEFINITION_SHA256}


def older_version(connection: duckdb.DuckDBPyConnection) -> int | None:
    """Of a database whose tables have to be brought up. Raises WarehouseError as `is_current`."""
    meta = _meta(connection)
    version = int(meta["schema_version"]) if meta else SCHEMA_VERSION
    return version if version < SCHEMA_VERSION else None


def define(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables and views of this code: whatever it is killed over, a transaction is there or is not."""
    version = older_version(connection) or SCHEMA_VERSION
    for number in range(version + 1, SCHEMA_VERSION + 1):
        connection.begin()
        connection.execute(MIGRATIONS[number])
        connection.execute("UPDATE meta SET value = $1 WHERE key = 'schema_version'", [str(number)])
        connection.commit()
    connection.begin()
    connection.execute(DEFINITION)
    gather_finished(connection)
    connection.execute("DELETE FROM meta")
    meta = [str(SCHEMA_VERSION), DEFINITION_SHA256]
    connection.execute("INSERT INTO meta VALUES ('schema_version', $1), ('definition_sha256', $2)", meta)
    connection.commit()


def _meta(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Empty where there are no tables yet."""
    try:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        version = int(meta["schema_version"])
    except duckdb.CatalogException:
        return {}
    except (duckdb.BinderException, KeyError, ValueError) as error:
        raise WarehouseError(
            "the database is not rlsift's: its table meta names no schema version; name another root"
        ) from error
    if version > SCHEMA_VERSION:
        raise WarehouseError(
            f"the warehouse has schema version {version}, this rlsift knows {SCHEMA_VERSION}: upgrade rlsift"
        )
    return meta
