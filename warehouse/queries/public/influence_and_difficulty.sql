-- Influence against difficulty: mean cosine and share selected by stage, validation set and known pass rate.
-- $run VARCHAR: name of the run
WITH known AS (
    SELECT run_steps.stage, selections.prompt_id, selections.selected, selections.pass_rate
    FROM selections
    JOIN run_steps USING (fingerprint)
    WHERE run_steps.run_id = $run AND pass_rate IS NOT NULL
),
scores AS (
    SELECT run_steps.stage, scores.prompt_id, scores.validation_set, scores.cosine, scores.norm
    FROM influence_scores AS scores
    JOIN run_steps USING (fingerprint)
    WHERE run_steps.run_id = $run AND run_steps.name = 'score' AND scores.estimator IS DISTINCT FROM 'cascade'
)
SELECT
    stage,
    validation_set,
    -- The two ends for themselves: zero-variance prompts.
    CASE pass_rate WHEN 0 THEN 0 WHEN 1 THEN 1 ELSE greatest(least(round(pass_rate, 1), 0.9), 0.1) END AS pass_rate,
    count(*) AS n_prompts,
    avg(cosine) AS mean_cosine,
    stddev_samp(cosine) AS std_cosine,
    count_if(norm = 0) AS n_without_gradient,
    avg(selected::INTEGER) AS share_selected
FROM scores
JOIN known USING (stage, prompt_id)
GROUP BY ALL
ORDER BY ALL;
