"""Stand-ins for the GPU: an engine, a tracer, Nsight and a post-processor that write what the real ones write.

They drive the whole flow on any machine. Nothing in the package itself imports them.
"""
