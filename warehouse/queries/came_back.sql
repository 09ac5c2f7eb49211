-- Which prompts of run $run_id were zero-variance and came back to mixed? Longest absence first.
SELECT
    revival.prompt_id,
    prompts.data_source,
    prompts.extra->>'kind' AS kind,
    revival.from_stage,
    revival.from_step,
    revival.from_outcome,
    revival.to_stage,
    revival.to_step,
    revival.to_pass_rate,
    revival.n_observations
FROM zero_variance_revivals AS revival
LEFT JOIN prompts USING (prompt_id)
WHERE revival.run_id = $run_id
ORDER BY revival.n_observations DESC, revival.prompt_id, revival.to_stage, revival.to_step;
