-- Completions that could not be graded, by stage, phase, verifier and data set, with the prompt that has the most.
-- $run VARCHAR: name of the run
SELECT
    run_steps.stage,
    totals.phase,
    prompts.verifier,
    prompts.data_source,
    sum(totals.n + totals.n_ungraded)::BIGINT AS completions,
    sum(totals.n_ungraded)::BIGINT AS ungraded,
    sum(totals.n_ungraded) / sum(totals.n + totals.n_ungraded) AS share_ungraded,
    count_if(totals.n_ungraded > 0)::BIGINT AS n_prompts,
    arg_max(totals.prompt_id, totals.n_ungraded) AS worst_prompt_id
FROM prompt_totals AS totals
JOIN run_steps USING (fingerprint)
LEFT JOIN prompts USING (prompt_id)
WHERE run_steps.run_id = $run
GROUP BY ALL
HAVING sum(totals.n_ungraded) > 0
ORDER BY ungraded DESC, run_steps.stage, totals.phase, prompts.verifier, prompts.data_source;
