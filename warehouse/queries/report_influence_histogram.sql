-- Cosine by stage and validation set in 30 bins of one width a set. Prompts without a gradient are left out.
WITH scores AS (
    SELECT stage, validation_set, cosine
    FROM influence_scores JOIN run_steps USING (fingerprint)
    WHERE run_id = $run_id AND name = 'score' AND norm > 0 AND estimator IS DISTINCT FROM 'cascade'
),
ranges AS (
    SELECT validation_set, min(cosine) AS low, greatest((max(cosine) - min(cosine)) / 30, 1e-6) AS width
    FROM scores GROUP BY validation_set
),
counts AS (
    SELECT stage, validation_set, least(floor((cosine - low) / width), 29)::BIGINT AS bin, count(*) AS n_prompts
    FROM scores JOIN ranges USING (validation_set)
    GROUP BY stage, validation_set, bin
)
SELECT
    stage,
    validation_set,
    low + bin * width AS cosine_low,
    low + (bin + 1) * width AS cosine_high,
    coalesce(n_prompts, 0) AS n_prompts
FROM (SELECT DISTINCT stage, validation_set FROM counts)
CROSS JOIN range(30) AS bins (bin)
JOIN ranges USING (validation_set)
LEFT JOIN counts USING (stage, validation_set, bin)
ORDER BY validation_set, stage, bin
