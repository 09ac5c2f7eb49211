"""kept_totals and kept_decisions: what prompt_totals and decision_totals say of finished steps, gathered once."""

import duckdb

AFTER_A_WRITE = """
    CREATE TEMP TABLE rewritten AS SELECT DISTINCT fingerprint FROM incoming ANTI JOIN ungathered USING (fingerprint);
    DELETE FROM kept_totals WHERE fingerprint IN (FROM rewritten);
    DELETE FROM kept_decisions WHERE fingerprint IN (FROM rewritten);
    INSERT INTO ungathered FROM rewritten;
    DROP TABLE rewritten;
"""
OF_OLDER_CODE = """
    INSERT OR IGNORE INTO ungathered
    SELECT DISTINCT fingerprint FROM rollout_stats ANTI JOIN kept_totals USING (fingerprint)
    UNION
    SELECT DISTINCT fingerprint FROM sampler_decisions ANTI JOIN kept_decisions USING (fingerprint);
    DELETE FROM kept_totals WHERE fingerprint IN (FROM ungathered);
    DELETE FROM kept_decisions WHERE fingerprint IN (FROM ungathered);
"""
GATHER = """
    CREATE TEMP TABLE finished AS
    SELECT fingerprint FROM ungathered JOIN steps USING (fingerprint) WHERE status IN ('completed', 'imported');
    INSERT INTO kept_totals BY NAME FROM prompt_totals SEMI JOIN finished USING (fingerprint);
    INSERT INTO kept_decisions BY NAME FROM decision_totals SEMI JOIN finished USING (fingerprint);
    DELETE FROM ungathered WHERE fingerprint IN (FROM finished);
    DROP TABLE finished;
"""


def forget_written(connection: duckdb.DuckDBPyConnection) -> None:
    """The steps in the registered table `incoming` have other rows now."""
    connection.execute(AFTER_A_WRITE)


def gather_finished(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep the totals of all finished steps that are not kept yet."""
    connection.execute(GATHER)


def gather_older(connection: duckdb.DuckDBPyConnection) -> None:
    """The same of a warehouse whose rows are older than its totals."""
    connection.execute(OF_OLDER_CODE)
    connection.execute(GATHER)
