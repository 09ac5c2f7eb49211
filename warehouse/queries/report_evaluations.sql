-- avg@k and pass@k of each evaluation set after each stage; stage 0 is before any training.
SELECT stage, evaluation_set, metric, k, value, standard_error, n_prompts
FROM evaluations JOIN run_steps USING (fingerprint)
WHERE run_id = $run_id AND name = 'evaluate'
ORDER BY evaluation_set, metric, k, stage
