-- How many zero-variance prompts are still so, or have revived, a number of observations later?
-- $run VARCHAR: name of the run
-- $after INTEGER = 1: observations of the prompt later
WITH alike AS (
    SELECT outcomes, count(*) AS n_prompts
    FROM prompt_paths
    WHERE run_id = $run AND length(outcomes) > $after
    GROUP BY ALL
),
-- One bit an observation: a shift lays the later over the earlier.
bits AS (
    SELECT
        n_prompts,
        class,
        translate(outcomes, 'RWM', digits)::BIT AS earlier,
        translate(outcomes, 'RWM', '111')::BIT << $after::INTEGER AS seen,
        translate(outcomes, 'RWM', '110')::BIT << $after::INTEGER AS still
    FROM alike
    CROSS JOIN (VALUES ('all_right', '100'), ('all_wrong', '010')) AS classes (class, digits)
),
counts AS (
    SELECT
        class,
        sum(n_prompts * bit_count(earlier & seen))::BIGINT AS n_pairs,
        sum(n_prompts * bit_count(earlier & still))::BIGINT AS n_still
    FROM bits
    GROUP BY class
)
SELECT
    class,
    $after::INTEGER AS after_observations,
    n_pairs,
    n_still,
    n_still / n_pairs AS share_still_zero_variance,
    1 - n_still / n_pairs AS share_revived
FROM counts
WHERE n_pairs > 0
ORDER BY class;
