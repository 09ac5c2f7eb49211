"""kept_totals and kept_decisions: what prompt_totals and decision_totals say of finished steps, gathered once."""

import duckdb

GATHERED = {"rollout_stats": "kept_totals", "sampler_decisions": "kept_decisions"}
"""Tables and what follows from them, which nobody else writes."""
AFTER_A_WRITE = """
    CREATE TEMP TABLE rewritten AS SELECT DISTINCT fingerprint FROM incoming ANTI JOIN ungathered USING (fingerprint);
    DELETE FROM kept_totals WHERE fingerprint IN (FROM rewritten);
    DELETE FROM kept_decisions WHERE fingerprint IN (FROM rewritten);
    INSERT INTO ungathered FROM rewritten;
    DROP TABLE rewritten;
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
