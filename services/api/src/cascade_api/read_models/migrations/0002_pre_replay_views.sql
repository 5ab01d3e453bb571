-- A kernel's row holds its KernelStat without `stats`; what is known only later (a kernel that a limit cut) is added
-- when it is read. The newest upload of a file or a step timeline wins by its time, whatever order facts come in.
-- The views are filled anew from the log.
TRUNCATE trace_view, run_view, sim_view, kernel_view, log_chunk_view, sim_file_view, step_timeline_view;
UPDATE projection_checkpoint SET position = 0 WHERE projection = 'views';

ALTER TABLE kernel_view RENAME COLUMN stat TO head;
ALTER TABLE step_timeline_view ADD COLUMN stored_at timestamptz NOT NULL;

-- A live sim's row is written again with every batch. Room on its page lets Postgres do that without touching indexes.
ALTER TABLE sim_view SET (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02);
