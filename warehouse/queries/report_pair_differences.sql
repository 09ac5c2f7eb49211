-- Pass rate of the other run less that of the run, prompt by prompt of each evaluation set: at the stages that both
-- evaluated, and at the last of each.
WITH members AS (
    SELECT DISTINCT run_id, set_name AS evaluation_set, prompt_id
    FROM prompt_sources JOIN run_steps USING (fingerprint)
    WHERE run_id IN ($run_id, $other) AND name = 'ingest' AND split = 'evaluation'
),
seen AS (
    SELECT
        run_id,
        evaluation_set,
        prompt_id,
        stage,
        stage = max(stage) OVER (PARTITION BY run_id, evaluation_set) AS is_last,
        n_correct / n AS pass_rate
    FROM rollout_stats JOIN run_steps USING (fingerprint) JOIN members USING (run_id, prompt_id)
    WHERE name = 'evaluate' AND n > 0
),
pairs AS (
    SELECT ours.stage, theirs.stage AS other_stage, evaluation_set, theirs.pass_rate - ours.pass_rate AS difference
    FROM (FROM seen WHERE run_id = $run_id) AS ours
    JOIN (FROM seen WHERE run_id = $other) AS theirs USING (evaluation_set, prompt_id)
    WHERE ours.stage = theirs.stage OR ours.is_last AND theirs.is_last
)
SELECT
    stage,
    other_stage,
    evaluation_set,
    count(*) AS n_prompts,
    avg(difference) AS difference,
    stddev_samp(difference) / sqrt(count(*)) AS standard_error,
    count_if(difference > 0) AS n_better,
    count_if(difference < 0) AS n_worse
FROM pairs
GROUP BY ALL
ORDER BY evaluation_set, stage, other_stage
