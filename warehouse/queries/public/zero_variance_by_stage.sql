-- Revival rate and half-life, in observations, of zero-variance prompts by the stage of the earlier observation.
-- $run VARCHAR: name of the run
WITH parts AS (
    SELECT
        prompt_id,
        list_sort(list({'place': steps.place, 'stage': steps.stage, 'outcomes': totals.outcomes})) AS parts
    FROM prompt_totals AS totals
    JOIN steps_in_order AS steps USING (fingerprint)
    WHERE steps.run_id = $run AND totals.phase <> 'evaluation' AND totals.outcomes <> ''
    GROUP BY prompt_id
),
numbered AS (
    SELECT parts, unnest(range(1, len(parts) + 1)) AS i FROM parts
),
-- Each part with the first observation of the next: what the last of this one became.
followed AS (
    SELECT
        parts[i].stage AS stage,
        parts[i].outcomes || coalesce(parts[i + 1].outcomes[1], '') AS outcomes
    FROM numbered
),
alike AS (
    SELECT stage, outcomes, left(outcomes, -1) AS earlier, count(*) AS n_prompts
    FROM followed
    GROUP BY ALL
),
counts AS (
    SELECT
        stage,
        class,
        sum(n_prompts * (length(earlier) - length(replace(earlier, letter, ''))))::BIGINT AS n_pairs,
        sum(n_prompts * (length(outcomes) - length(replace(outcomes, letter || 'M', ''))) // 2)::BIGINT AS n_revived
    FROM alike
    CROSS JOIN (VALUES ('all_right', 'R'), ('all_wrong', 'W')) AS classes (class, letter)
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
