-- How many prompts two stages both selected, and what share that is of all that either selected.
-- $run VARCHAR: name of the run
SELECT stage_a, stage_b, n_a, n_b, n_both, jaccard
FROM selection_overlap
WHERE run_id = $run
ORDER BY stage_a, stage_b;
