-- The metrics count sims by state. With this index a count reads no row.
CREATE INDEX sim_view_by_state ON sim_view (sim_state);
