-- What each stage selected against what it left out, and what its sampler rolled out or skipped, by kind and reason.
-- $run VARCHAR: name of the run
-- mean_pass_rate is what was known before the stage; a sampler may decide on one prompt several times.
WITH pool AS MATERIALIZED (
    FROM selection_history WHERE run_id = $run
),
decided AS (
    SELECT
        stage,
        CASE WHEN selected THEN 'selected' ELSE 'left_out' END AS decision,
        kind,
        reason,
        prompt_id,
        pass_rate,
        1 AS n
    FROM pool
    UNION ALL
    SELECT
        run_steps.stage,
        CASE WHEN decisions.keep THEN 'rolled_out' ELSE 'skipped' END AS decision,
        pool.kind,
        decisions.reason,
        decisions.prompt_id,
        pool.pass_rate,
        decisions.n_decisions AS n
    FROM decision_totals AS decisions
    JOIN run_steps USING (fingerprint)
    LEFT JOIN pool ON pool.stage = run_steps.stage AND pool.prompt_id = decisions.prompt_id
    WHERE run_steps.run_id = $run
)
SELECT
    stage,
    decision,
    kind,
    reason,
    sum(n)::BIGINT AS n_decisions,
    count(*) AS n_prompts,
    sum(n * pass_rate) / sum(n) FILTER (pass_rate IS NOT NULL) AS mean_pass_rate
FROM decided
GROUP BY ALL
ORDER BY ALL;
