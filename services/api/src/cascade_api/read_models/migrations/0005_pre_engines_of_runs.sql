-- The list of runs says what made their numbers. The engine is cut out of the document as JSON, where a sim that has none
-- has `null`. No quote stands alone inside of a JSON string, so the first `"engine":` is the field.
ALTER TABLE sim_view ADD COLUMN engine_json bytea GENERATED ALWAYS AS (
    substring(state FROM position('"engine":'::bytea IN state) + 9
                    FOR greatest(position(',"partial_kernel":'::bytea IN state)
                                 - position('"engine":'::bytea IN state) - 9, 0))
) STORED;
