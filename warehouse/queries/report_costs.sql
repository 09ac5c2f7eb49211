-- What each stage cost, without its evaluation: completions, their tokens, seconds of the steps' last attempts. A step
-- that other runs share counts whole.
WITH taken AS (
    SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run_id AND name NOT IN ('evaluate', 'report')
),
generated AS (
    SELECT stage, sum(n + n_ungraded)::BIGINT AS rollouts, sum(n_tokens)::BIGINT AS tokens
    FROM prompt_totals JOIN taken USING (fingerprint)
    GROUP BY stage
),
timed AS (
    SELECT stage, sum(epoch(finished_at) - epoch(started_at)) AS seconds
    FROM steps JOIN taken USING (fingerprint)
    GROUP BY stage
)
SELECT
    stage,
    coalesce(rollouts, 0) AS rollouts,
    coalesce(tokens, 0) AS tokens,
    coalesce(seconds, 0) AS seconds
FROM (SELECT DISTINCT stage FROM taken)
LEFT JOIN generated USING (stage)
LEFT JOIN timed USING (stage)
ORDER BY stage
