-- How many prompts go from which outcome of one stage to which of the next: R all right, M mixed, W all wrong, the last
-- that the stage saw of the prompt, and - where the stage never rolled it out.
WITH seen AS (
    SELECT stage, prompt_id, arg_max(outcomes[-1], place) AS outcome
    FROM prompt_totals JOIN steps_in_order USING (fingerprint)
    WHERE run_id = $run_id AND name IN ('rollouts_train', 'recollect_train', 'train') AND outcomes <> ''
    GROUP BY ALL
),
grid AS (
    SELECT stage, prompt_id, coalesce(outcome, '-') AS outcome
    FROM (SELECT DISTINCT stage FROM seen)
    CROSS JOIN (SELECT DISTINCT prompt_id FROM seen)
    LEFT JOIN seen USING (stage, prompt_id)
),
followed AS (
    SELECT
        stage,
        outcome,
        lead(stage) OVER (PARTITION BY prompt_id ORDER BY stage) AS next_stage,
        lead(outcome) OVER (PARTITION BY prompt_id ORDER BY stage) AS next_outcome
    FROM grid
)
SELECT stage, outcome, next_stage, next_outcome, count(*) AS n_prompts
FROM followed
WHERE next_stage IS NOT NULL
GROUP BY ALL
ORDER BY ALL
