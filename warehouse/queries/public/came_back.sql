-- Prompts that were zero-variance and came back to mixed, with how often, and their longest absence in observations.
-- $run VARCHAR: name of the run
-- $limit INTEGER = 100: prompts to list, the longest absence first
WITH absences AS (
    SELECT
        prompt_id,
        outcomes,
        [length(run) - 1 FOR run IN regexp_extract_all(outcomes, 'R+M|W+M')] AS lengths
    FROM prompt_paths
    WHERE run_id = $run AND regexp_matches(outcomes, '[RW]M')
),
longest AS (
    SELECT prompt_id, outcomes, len(lengths) AS n_revivals, list_max(lengths) AS longest_absence
    FROM absences
    ORDER BY longest_absence DESC, prompt_id
    LIMIT $limit
)
SELECT
    prompt_id,
    prompts.data_source,
    prompts.extra->>'kind' AS kind,
    n_revivals,
    longest_absence,
    outcomes
FROM longest
LEFT JOIN prompts USING (prompt_id)
ORDER BY longest_absence DESC, prompt_id;
