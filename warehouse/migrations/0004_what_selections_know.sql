-- Version 4: what the policy makes of a prompt by reading it is kept, and a selection says what was known of each prompt by
-- then. Those made before get it from the statistics of the steps that they named as their history.

CREATE TABLE prompt_states (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    n_tokens INTEGER NOT NULL,
    state FLOAT[] NOT NULL
);

ALTER TABLE selections ADD COLUMN pass_rate DOUBLE;

WITH named AS (
    SELECT fingerprint AS selection, inputs, unnest(json_keys(inputs)) AS key FROM steps WHERE name = 'select'
),
history AS (
    -- The first warehouses name the offline rollouts, then the trained stages.
    SELECT
        selection,
        inputs->>key AS fingerprint,
        CASE WHEN key = 'rollouts_train' THEN 0 ELSE regexp_extract(key, '\d+$')::INTEGER END AS age
    FROM named
    WHERE regexp_full_match(key, 'history_\d+|rollouts_train|train_\d+')
),
known AS (
    SELECT selection, prompt_id, arg_max(n_correct / n, (age, step)) AS pass_rate
    FROM rollout_stats
    JOIN history USING (fingerprint)
    WHERE n > 0
    GROUP BY ALL
)
UPDATE selections SET pass_rate = known.pass_rate
FROM known
WHERE known.selection = selections.fingerprint AND known.prompt_id = selections.prompt_id;
