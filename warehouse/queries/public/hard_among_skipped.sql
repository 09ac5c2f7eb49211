-- Share of hard prompts among those that the sampler skipped or rolled out, by stage, by what was known before it.
-- $run VARCHAR: name of the run
-- $hard DOUBLE = 0.2: greatest pass rate that a hard prompt was known to have, from 0 to 1
-- share_hard is of the decisions on prompts whose pass rate was known.
WITH decided AS (
    SELECT run_steps.stage, decisions.prompt_id, decisions.keep, sum(decisions.n_decisions) AS n
    FROM decision_totals AS decisions
    JOIN run_steps USING (fingerprint)
    WHERE run_steps.run_id = $run
    GROUP BY ALL
),
known AS (
    SELECT run_steps.stage, selections.prompt_id, selections.pass_rate
    FROM selections
    JOIN run_steps USING (fingerprint)
    WHERE run_steps.run_id = $run AND pass_rate IS NOT NULL
)
SELECT
    stage,
    CASE WHEN keep THEN 'rolled_out' ELSE 'skipped' END AS decision,
    sum(n)::BIGINT AS n_decisions,
    count(*) AS n_prompts,
    coalesce(sum(n) FILTER (pass_rate <= $hard), 0)::BIGINT AS n_hard,
    coalesce(sum(n) FILTER (pass_rate <= $hard), 0) / sum(n) FILTER (pass_rate IS NOT NULL) AS share_hard
FROM decided
LEFT JOIN known USING (stage, prompt_id)
GROUP BY stage, keep
ORDER BY stage, decision;
