-- Prompts that went from never solved over mixed to solved, with the stage and step of either change.
-- $run VARCHAR: name of the run
-- $limit INTEGER = 100: prompts to list, the last solved first
WITH found AS (
    SELECT
        prompt_id,
        outcomes,
        instr(outcomes, 'M') AS mixed_at,
        instr(outcomes, 'M') + instr(outcomes[instr(outcomes, 'M') + 1:], 'R') AS solved_at
    FROM prompt_paths
    WHERE run_id = $run AND regexp_matches(outcomes, '^W+M.*R')
),
parts AS (
    SELECT
        totals.prompt_id,
        list_sort(list({'place': steps.place, 'stage': steps.stage, 'steps': totals.steps})) AS parts
    FROM prompt_totals AS totals
    JOIN steps_in_order AS steps USING (fingerprint)
    SEMI JOIN found USING (prompt_id)
    WHERE steps.run_id = $run AND totals.phase <> 'evaluation'
    GROUP BY totals.prompt_id
),
placed AS (
    SELECT
        found.*,
        flatten([part.steps FOR part IN parts]) AS steps,
        flatten([[part.stage FOR _ IN part.steps] FOR part IN parts]) AS stages
    FROM found
    JOIN parts USING (prompt_id)
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
    FROM placed
    ORDER BY solved_stage DESC, solved_step DESC, prompt_id
    LIMIT $limit
)
SELECT solved.*, prompts.data_source, prompts.extra->>'kind' AS kind
FROM solved
LEFT JOIN prompts USING (prompt_id)
ORDER BY solved_stage DESC, solved_step DESC, prompt_id;
