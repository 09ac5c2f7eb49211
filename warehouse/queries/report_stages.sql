-- One row a stage that has begun; stage 0 holds the offline rollouts.
WITH taken AS (SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run_id),
selected AS (
    SELECT stage, count(*) FILTER (selected) AS prompts_selected
    FROM selections JOIN taken USING (fingerprint) WHERE name = 'select' GROUP BY stage
),
offline AS (
    SELECT stage, sum(n + n_ungraded) AS rollouts
    FROM rollout_stats JOIN taken USING (fingerprint) WHERE phase = 'offline' GROUP BY stage
),
trained AS (
    SELECT stage, count(*) AS steps, sum(rollouts) AS rollouts, sum(prompts_skipped) AS prompts_skipped
    FROM train_steps JOIN taken USING (fingerprint) WHERE name = 'train' GROUP BY stage
),
practised AS (
    SELECT stage, prompt_id, count_if(has_signal) AS groups_with_signal
    FROM rollout_stats JOIN taken USING (fingerprint) WHERE name = 'train' AND n > 0 GROUP BY ALL
),
taught AS (
    -- exp(entropy) of the prompts' shares of the groups with signal.
    SELECT
        stage,
        count(*) AS prompts_rolled_out,
        count(*) FILTER (share > 0) AS prompts_with_signal,
        exp(-sum(share * ln(nullif(share, 0)))) AS prompts_effective
    FROM (
        SELECT stage, groups_with_signal / nullif(sum(groups_with_signal) OVER (PARTITION BY stage), 0) AS share
        FROM practised
    )
    GROUP BY stage
),
scored AS (
    SELECT
        stage,
        count(DISTINCT prompt_id) AS prompts_scored,
        count(DISTINCT prompt_id) FILTER (norm = 0) AS prompts_without_gradient
    FROM influence_scores JOIN taken USING (fingerprint) WHERE name = 'score' GROUP BY stage
)
SELECT
    stage,
    prompts_selected,
    steps,
    coalesce(trained.rollouts + coalesce(offline.rollouts, 0), offline.rollouts) AS rollouts,
    prompts_skipped * (
        SELECT (config->>'$.train.group_size')::BIGINT FROM runs WHERE run_id = $run_id
    ) AS rollouts_skipped,
    prompts_scored,
    prompts_without_gradient,
    prompts_rolled_out,
    prompts_with_signal,
    prompts_effective
FROM (SELECT DISTINCT stage FROM taken WHERE name <> 'report')
LEFT JOIN selected USING (stage)
LEFT JOIN offline USING (stage)
LEFT JOIN trained USING (stage)
LEFT JOIN scored USING (stage)
LEFT JOIN taught USING (stage)
ORDER BY stage
