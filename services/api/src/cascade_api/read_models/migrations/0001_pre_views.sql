-- The read models. Every `_view` table is recreated by a rebuild; only `schema_migration` is not.
-- Folded states are kept as JSON documents in `bytea`: Postgres refuses NUL in text and jsonb, logs may hold it.

CREATE TABLE projection_checkpoint (
    projection text PRIMARY KEY,
    position   bigint NOT NULL  -- the last stream position that the views contain
);
INSERT INTO projection_checkpoint VALUES ('views', 0);

CREATE TABLE trace_view (
    trace_token text PRIMARY KEY,    -- the subject token: two ids never share one
    created_at  timestamptz NOT NULL,
    removed     boolean NOT NULL,
    summary     bytea NOT NULL,      -- TraceSummary, JSON
    state       bytea NOT NULL       -- the folded Trace, zstd JSON: metadata and kernels may be large
);

CREATE TABLE run_view (
    run_id     text PRIMARY KEY,
    created_at timestamptz NOT NULL,
    position   bigint NOT NULL,      -- tie-breaker of equal times
    state      bytea NOT NULL        -- the folded Run, JSON
);

CREATE TABLE sim_view (
    sim_id      text PRIMARY KEY,
    run_id      text NOT NULL,
    gpu_config  text NOT NULL,
    replica     integer NOT NULL,
    sim_state   text NOT NULL,
    finished_at timestamptz,
    archived    boolean NOT NULL,
    parsed      boolean NOT NULL,    -- the parser has read the ended sim's log to its end
    state       bytea NOT NULL       -- the folded Sim, JSON
);
CREATE INDEX sim_view_by_run ON sim_view (run_id, gpu_config, replica);
-- The archiver looks for ended sims whose log is still in the stream.
CREATE INDEX sim_view_to_archive ON sim_view (finished_at) WHERE NOT archived AND finished_at IS NOT NULL;

CREATE TABLE kernel_view (
    sim_id       text NOT NULL,
    kernel_index integer NOT NULL,
    kernel_name  text NOT NULL,
    sim_time_ns  double precision,
    stat         bytea NOT NULL,     -- KernelStat without its stats, JSON; counters may exceed bigint
    stats        bytea NOT NULL,     -- the full stats map, zstd JSON
    PRIMARY KEY (sim_id, kernel_index)
);

CREATE TABLE log_chunk_view (
    sim_id   text NOT NULL,
    seq      bigint NOT NULL,        -- the first chunk stored for a seq wins
    position bigint NOT NULL,        -- where the lines lie in the stream
    PRIMARY KEY (sim_id, seq)
);

CREATE TABLE sim_file_view (
    sim_id       text NOT NULL,
    name         text NOT NULL,
    size         bigint NOT NULL,
    content_type text NOT NULL,
    created_at   timestamptz NOT NULL,
    object_key   text NOT NULL,
    PRIMARY KEY (sim_id, name)
);

CREATE TABLE step_timeline_view (
    sim_id    text PRIMARY KEY,
    simulated bytea NOT NULL,        -- zstd JSON, as the sim sent it
    compare   bytea                  -- zstd JSON
);
