-- How did the pass rate of prompt $prompt_id change over the stages, and when was it selected?
SELECT
    history.run_id,
    history.stage,
    history.phase,
    history.step,
    history.policy_id,
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
LEFT JOIN selection_history AS selection USING (run_id, stage, prompt_id)
WHERE history.prompt_id = $prompt_id
ORDER BY history.run_id, history.observation;
