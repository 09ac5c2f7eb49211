-- Version 3: prompts compared with the validation sets by the policy's states.

CREATE TABLE relevances (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    validation_set VARCHAR NOT NULL,
    cosine DOUBLE NOT NULL,
    relevance DOUBLE NOT NULL
);
