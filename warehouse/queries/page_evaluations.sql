-- Every evaluation of stage $stage of run $run_id beside the stage before and the initial policy.
SELECT
    evaluation_set,
    metric,
    k,
    n_prompts,
    value - change_from_stage_0 AS initial,
    value - change_from_previous_stage AS previous,
    value,
    standard_error,
    change_from_previous_stage,
    change_from_stage_0
FROM evaluation_history
WHERE run_id = $run_id AND stage = $stage
ORDER BY evaluation_set, metric, k;
