-- Agreement of two runs, stage by stage, on the prompts that both saw: pass rates, outcomes, and what both selected.
-- $run VARCHAR: name of one run
-- $other VARCHAR: name of the other
WITH seen AS (
    SELECT
        run_steps.run_id,
        run_steps.stage,
        totals.phase,
        totals.prompt_id,
        any_value(totals.policy_id) AS policy_id,
        any_value(settings.engine) AS engine,
        any_value(settings.temperature) AS temperature,
        -- A prompt of the pool may stand in a validation set too: two steps of one stage have rolled it out.
        sum(totals.n_correct) / sum(totals.n) AS pass_rate
    FROM prompt_totals AS totals
    JOIN run_steps USING (fingerprint)
    LEFT JOIN rollout_settings AS settings USING (fingerprint)
    WHERE run_steps.run_id IN ($run, $other) AND totals.n > 0
    GROUP BY ALL
),
agreed AS (
    SELECT
        stage,
        phase,
        count(*) AS n_both_saw,
        avg(ours.pass_rate) AS pass_rate,
        avg(theirs.pass_rate) AS other_pass_rate,
        avg(abs(ours.pass_rate - theirs.pass_rate)) AS absolute_difference,
        corr(ours.pass_rate, theirs.pass_rate) AS correlation,
        -- All right, all wrong, or mixed over the stage: the mixed ones need not have one pass rate.
        avg(((ours.pass_rate IN (0, 1) OR theirs.pass_rate IN (0, 1)) <= (ours.pass_rate = theirs.pass_rate))::INTEGER)
            AS share_same_outcome,
        any_value(ours.policy_id) AS policy_id,
        any_value(theirs.policy_id) AS other_policy_id,
        any_value(ours.engine) AS engine,
        any_value(theirs.engine) AS other_engine,
        any_value(ours.temperature) AS temperature,
        any_value(theirs.temperature) AS other_temperature
    FROM (FROM seen WHERE run_id = $run) AS ours
    JOIN (FROM seen WHERE run_id = $other) AS theirs USING (stage, phase, prompt_id)
    GROUP BY ALL
),
chosen AS (
    SELECT DISTINCT run_id, stage, prompt_id
    FROM selections
    JOIN run_steps USING (fingerprint)
    WHERE run_id IN ($run, $other) AND selected
),
overlap AS (
    SELECT
        stage,
        'train' AS phase,
        count(*) - count(DISTINCT prompt_id) AS n_both_selected,
        count(*) / count(DISTINCT prompt_id) - 1 AS jaccard_selected
    FROM chosen
    GROUP BY stage
    HAVING count(DISTINCT run_id) = 2
)
SELECT *
FROM agreed
FULL JOIN overlap USING (stage, phase)
ORDER BY stage, phase;
