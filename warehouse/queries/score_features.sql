-- Influence from projected gradients alone: $train holds one feature a prompt, $validation one a validation set
-- (paths or globs of Parquet files; a feature's entries are divided by its `scale`). So a validation set that
-- comes later is scored without the policy. Features of different projections are never compared.
WITH pairs AS (
    SELECT
        train.prompt_id,
        validation.validation_set,
        CAST(train.scale AS DOUBLE) * validation.scale
            * list_inner_product(train.feature, validation.feature) AS dot,
        -- DuckDB's cosine with a zero vector is -1; a zero gradient has influence 0.
        CASE
            WHEN train.scale = 0 OR validation.scale = 0 THEN 0
            ELSE CAST(list_cosine_similarity(train.feature, validation.feature) AS DOUBLE)
        END AS cosine,
        CAST(train.scale AS DOUBLE)
            * sqrt(CAST(list_inner_product(train.feature, train.feature) AS DOUBLE)) AS norm
    FROM read_parquet($train) AS train
    INNER JOIN read_parquet($validation) AS validation USING (projection)
)
SELECT
    prompt_id,
    validation_set,
    dot,
    cosine,
    norm,
    CAST(row_number() OVER (PARTITION BY validation_set ORDER BY cosine DESC, prompt_id) AS INTEGER) AS rank
FROM pairs
ORDER BY validation_set, rank;
