-- A scenario looks for the runs of its trace. The id is cut out of the document as JSON, since it may hold NUL. No quote
-- stands alone inside of a JSON string, so the first `,"created_at":` is the one behind the id.
ALTER TABLE run_view ADD COLUMN trace_json bytea GENERATED ALWAYS AS (
    substring(state FROM position('"trace_id":'::bytea IN state) + 11
                    FOR greatest(position(',"created_at":'::bytea IN state)
                                 - position('"trace_id":'::bytea IN state) - 11, 0))
) STORED;
-- A hash, which has room for an id of any length.
CREATE INDEX run_view_by_trace ON run_view USING hash (trace_json);
