-- Completions that taught nothing, since the rewards of their group did not differ, by stage and phase.
-- $run VARCHAR: name of the run
SELECT
    run_steps.stage,
    totals.phase,
    settings.engine,
    sum(totals.n + totals.n_ungraded)::BIGINT AS completions,
    sum(totals.n_without_signal)::BIGINT AS wasted,
    sum(totals.n_without_signal) / nullif(sum(totals.n + totals.n_ungraded), 0) AS share_wasted,
    sum(totals.n_ungraded)::BIGINT AS ungraded,
    sum(totals.n_truncated)::BIGINT AS truncated,
    round(sum(totals.n_tokens))::BIGINT AS tokens
FROM prompt_totals AS totals
JOIN run_steps USING (fingerprint)
LEFT JOIN rollout_settings AS settings USING (fingerprint)
WHERE run_steps.run_id = $run AND totals.phase <> 'evaluation'
GROUP BY ALL
ORDER BY run_steps.stage, totals.phase;
