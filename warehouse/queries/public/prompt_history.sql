-- Difficulty history of a prompt: each observation, its change in pass rate, and whether its stage had selected it.
-- $prompt VARCHAR: id of the prompt
-- $run VARCHAR = NULL: name of the run; every run that saw the prompt when left out
SELECT
    history.run_id,
    history.stage,
    history.phase,
    history.step,
    history.policy_id,
    history.engine,
    history.temperature,
    history.n,
    history.n_correct,
    history.pass_rate,
    history.pass_rate - lag(history.pass_rate) OVER (
        PARTITION BY history.run_id ORDER BY history.observation
    ) AS change,
    history.outcome,
    selection.selected,
    selection.reason
FROM prompt_difficulty_history AS history
LEFT JOIN (
    SELECT run_id, stage, prompt_id, selected, reason FROM selections JOIN run_steps USING (fingerprint)
) AS selection USING (run_id, stage, prompt_id)
WHERE history.prompt_id = $prompt AND ($run IS NULL OR history.run_id = $run)
ORDER BY history.run_id, history.observation;
