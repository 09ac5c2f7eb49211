-- How many prompts each of two runs had to choose from and selected at a stage, and how many both.
WITH chosen AS (
    SELECT run_id, stage, prompt_id, selected
    FROM selections JOIN run_steps USING (fingerprint)
    WHERE run_id IN ($run_id, $other) AND name = 'select'
)
SELECT
    stage,
    count(ours.prompt_id) AS n_pool,
    count(theirs.prompt_id) AS n_other_pool,
    count(*) FILTER (ours.prompt_id IS NOT NULL AND theirs.prompt_id IS NOT NULL) AS n_both_pool,
    count(*) FILTER (ours.selected) AS n_selected,
    count(*) FILTER (theirs.selected) AS n_other_selected,
    count(*) FILTER (ours.selected AND theirs.selected) AS n_both_selected
FROM (FROM chosen WHERE run_id = $run_id) AS ours
FULL JOIN (FROM chosen WHERE run_id = $other) AS theirs USING (stage, prompt_id)
GROUP BY stage
HAVING n_pool > 0 AND n_other_pool > 0
ORDER BY stage
