-- Prompts that went from never solved over mixed to solved, with the stage and step of either change.
-- $run VARCHAR: name of the run
-- $limit INTEGER = 100: prompts to list, the last solved first
WITH found AS (
    SELECT
        *,
        instr(outcomes, 'M') AS mixed_at,
        instr(outcomes, 'M') + instr(outcomes[instr(outcomes, 'M') + 1:], 'R') AS solved_at
    FROM prompt_paths
    WHERE run_id = $run AND regexp_matches(outcomes, '^W+M.*R')
),
solved AS (
    SELECT
        prompt_id,
        mixed_at - 1 AS unsolved_observations,
        stages[mixed_at] AS mixed_stage,
        steps[mixed_at] AS mixed_step,
        stages[solved_at] AS solved_stage,
        steps[solved_at] AS solved_step,
        solved_at - mixed_at AS observations_between,
        outcomes
    FROM found
    ORDER BY solved_stage DESC, solved_step DESC, prompt_id
    LIMIT $limit
)
SELECT solved.*, prompts.data_source, prompts.extra->>'kind' AS kind
FROM solved
LEFT JOIN prompts USING (prompt_id)
ORDER BY solved_stage DESC, solved_step DESC, prompt_id;
