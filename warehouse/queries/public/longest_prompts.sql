-- Prompts whose completions are the longest, and so the slowest: tokens by completion, in all, and share cut off.
-- $run VARCHAR: name of the run
-- $limit INTEGER = 100: prompts to list, the longest mean first
WITH lengths AS (
    SELECT
        totals.prompt_id,
        sum(totals.n + totals.n_ungraded)::BIGINT AS completions,
        sum(totals.n_tokens) / sum(totals.n + totals.n_ungraded) AS mean_length,
        max(totals.max_length) AS max_length,
        round(sum(totals.n_tokens))::BIGINT AS tokens,
        sum(totals.n_truncated) / sum(totals.n + totals.n_ungraded) AS share_truncated,
        sum(totals.n_correct) / nullif(sum(totals.n), 0) AS pass_rate
    FROM prompt_totals AS totals
    JOIN run_steps USING (fingerprint)
    WHERE run_steps.run_id = $run
    GROUP BY totals.prompt_id
    ORDER BY mean_length DESC, prompt_id
    LIMIT $limit
)
SELECT lengths.*, prompts.data_source, prompts.extra->>'kind' AS kind
FROM lengths
LEFT JOIN prompts USING (prompt_id)
ORDER BY mean_length DESC, prompt_id;
