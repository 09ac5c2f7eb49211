-- The best prompts that stage $stage of run $run_id practises on, with the latest pass rate before it.
WITH taken AS (SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run_id),
ranked AS (
    SELECT
        prompt_id,
        rank,
        score,
        strategy,
        selected,
        count(*) OVER () AS n_pool,
        count(*) FILTER (selected) OVER () AS n_selected
    FROM selections JOIN taken USING (fingerprint) WHERE name = 'select' AND stage = $stage
),
shown AS (SELECT * FROM ranked WHERE selected ORDER BY rank LIMIT 100),
latest AS (
    SELECT prompt_id, n_correct / n AS pass_rate
    FROM rollout_stats s JOIN taken t USING (fingerprint) SEMI JOIN shown USING (prompt_id)
    WHERE n > 0 AND (
        t.name IN ('rollouts_train', 'train', 'recollect_train') AND t.stage < $stage
        OR t.name = 'recollect_train' AND t.stage = $stage
    )
    QUALIFY row_number() OVER (PARTITION BY prompt_id ORDER BY t.stage DESC, s.step DESC) = 1
)
SELECT
    rank,
    left(messages->>'$[#-1].content', 200) AS prompt,
    extra->>'$.kind' AS kind,
    pass_rate,
    score,
    strategy,
    n_pool,
    n_selected
FROM shown JOIN prompts USING (prompt_id) LEFT JOIN latest USING (prompt_id)
ORDER BY rank
