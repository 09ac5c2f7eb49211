-- The 25 best and 10 worst of the pool by rank at the last stage that selected, with the latest pass rate before it.
WITH taken AS (SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run_id),
ranked AS (
    SELECT stage, prompt_id, rank, selected, score, reason
    FROM selections JOIN taken USING (fingerprint) WHERE name = 'select'
    QUALIFY stage = max(stage) OVER ()
),
shown AS (
    SELECT * FROM ranked
    QUALIFY row_number() OVER (ORDER BY rank) <= 25 OR row_number() OVER (ORDER BY rank DESC) <= 10
),
latest AS (
    SELECT prompt_id, n_correct / n AS pass_rate
    FROM rollout_stats s JOIN taken t USING (fingerprint) JOIN shown USING (prompt_id)
    WHERE n > 0 AND (
        t.name IN ('rollouts_train', 'train', 'recollect_train') AND t.stage < shown.stage
        OR t.name = 'recollect_train' AND t.stage = shown.stage
    )
    QUALIFY row_number() OVER (PARTITION BY prompt_id ORDER BY t.stage DESC, s.step DESC) = 1
)
SELECT
    stage,
    rank,
    selected,
    prompt_id,
    left(messages->>'$[#-1].content', 600) AS prompt,
    data_source,
    extra->>'$.kind' AS kind,
    pass_rate,
    score,
    reason
FROM shown JOIN prompts USING (prompt_id) LEFT JOIN latest USING (prompt_id)
ORDER BY rank
