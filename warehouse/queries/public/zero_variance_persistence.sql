-- How many zero-variance prompts are still so, or have revived, a number of observations later?
-- $run VARCHAR: name of the run
-- $after INTEGER = 1: observations of the prompt later, from 1 to 10
SELECT class, lag AS after_observations, n_pairs, share_still_zero_variance, share_revived
FROM zero_variance_persistence
WHERE run_id = $run AND lag = $after
ORDER BY class;
