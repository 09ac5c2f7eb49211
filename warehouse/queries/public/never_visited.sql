-- Prompts of the pool that no training step rolled out, with how often they were selected and skipped.
-- $run VARCHAR: name of the run
-- $limit INTEGER = 100: prompts to list, the most often skipped first
WITH taken AS (SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run),
pool AS (
    SELECT DISTINCT prompt_id
    FROM prompt_sources
    JOIN taken USING (fingerprint)
    WHERE split = 'train' AND name = 'ingest'
),
visited AS (
    SELECT prompt_id FROM prompt_totals JOIN taken USING (fingerprint) WHERE phase = 'train'
),
never AS (
    FROM pool ANTI JOIN visited USING (prompt_id)
),
chosen AS (
    SELECT prompt_id, count_if(selected) AS times_selected
    FROM selections
    JOIN taken USING (fingerprint)
    SEMI JOIN never USING (prompt_id)
    GROUP BY prompt_id
),
skipped AS (
    SELECT prompt_id, sum(n_decisions)::BIGINT AS times_skipped
    FROM decision_totals
    JOIN taken USING (fingerprint)
    SEMI JOIN never USING (prompt_id)
    WHERE NOT keep
    GROUP BY prompt_id
),
offline AS (
    SELECT prompt_id, n_correct / nullif(n, 0) AS offline_pass_rate
    FROM prompt_totals
    JOIN taken USING (fingerprint)
    SEMI JOIN never USING (prompt_id)
    WHERE name = 'rollouts_train'
)
SELECT
    prompt_id,
    prompts.data_source,
    prompts.extra->>'kind' AS kind,
    coalesce(times_selected, 0)::BIGINT AS times_selected,
    coalesce(times_skipped, 0) AS times_skipped,
    offline_pass_rate,
    count(*) OVER () AS n_never_visited
FROM never
LEFT JOIN chosen USING (prompt_id)
LEFT JOIN skipped USING (prompt_id)
LEFT JOIN offline USING (prompt_id)
LEFT JOIN prompts USING (prompt_id)
ORDER BY times_skipped DESC, times_selected DESC, prompt_id
LIMIT $limit;
