-- Revival rate and half-life, in observations, of zero-variance prompts by the stage of the earlier observation.
-- $run VARCHAR: name of the run
WITH parts AS (
    SELECT
        run_steps.stage,
        -- With the first observation of the part that follows: what the last of this one became.
        totals.outcomes || coalesce(left(lead(totals.outcomes) OVER (
            PARTITION BY totals.prompt_id ORDER BY run_steps.stage, totals.phase, run_steps.name
        ), 1), '') AS outcomes
    FROM prompt_totals AS totals
    JOIN run_steps USING (fingerprint)
    WHERE run_steps.run_id = $run AND totals.phase <> 'evaluation' AND totals.outcomes <> ''
),
alike AS (
    SELECT stage, outcomes, count(*) AS n_prompts FROM parts WHERE length(outcomes) > 1 GROUP BY ALL
),
bits AS (
    SELECT
        stage,
        n_prompts,
        class,
        translate(outcomes, 'RWM', digits)::BIT AS earlier,
        translate(outcomes, 'RWM', '111')::BIT << 1 AS seen,
        translate(outcomes, 'RWM', '001')::BIT << 1 AS revived
    FROM alike
    CROSS JOIN (VALUES ('all_right', '100'), ('all_wrong', '010')) AS classes (class, digits)
),
counts AS (
    SELECT
        stage,
        class,
        sum(n_prompts * bit_count(earlier & seen))::BIGINT AS n_pairs,
        sum(n_prompts * bit_count(earlier & revived))::BIGINT AS n_revived
    FROM bits
    GROUP BY ALL
)
SELECT
    stage,
    class,
    n_pairs,
    n_revived,
    n_revived / n_pairs AS revival_rate,
    CASE
        WHEN n_revived > 0 AND n_revived < n_pairs THEN ln(0.5) / ln(1 - n_revived / n_pairs)
    END AS half_life_observations
FROM counts
WHERE n_pairs > 0
ORDER BY stage, class;
