"""kept_totals: what the view prompt_totals says of finished steps, gathered once."""

import duckdb

AFTER_A_WRITE = """
    DELETE FROM kept_totals WHERE fingerprint IN (
        SELECT fingerprint FROM incoming ANTI JOIN ungathered USING (fingerprint)
    );
    INSERT OR IGNORE INTO ungathered SELECT DISTINCT fingerprint FROM incoming;
"""
OF_OLDER_CODE = """
    INSERT OR IGNORE INTO ungathered
    SELECT DISTINCT fingerprint FROM rollout_stats ANTI JOIN kept_totals USING (fingerprint);
"""
GATHER = """
    CREATE TEMP TABLE finished AS
    SELECT fingerprint FROM ungathered JOIN steps USING (fingerprint) WHERE status IN ('completed', 'imported');
    INSERT INTO kept_totals BY NAME FROM prompt_totals SEMI JOIN finished USING (fingerprint);
    DELETE FROM ungathered WHERE fingerprint IN (FROM finished);
    DROP TABLE finished;
"""


def forget_written(connection: duckdb.DuckDBPyConnection) -> None:
    """The steps in the registered table `incoming` have other rollout_stats now."""
    connection.execute(AFTER_A_WRITE)


def gather_finished(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep the totals of all finished steps that are not kept yet."""
    connection.execute(GATHER)


def gather_older(connection: duckdb.DuckDBPyConnection) -> None:
    """The same of a warehouse whose rows are older than its totals."""
    connection.execute(OF_OLDER_CODE)
    connection.execute(GATHER)
