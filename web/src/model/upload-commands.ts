// The documented commands that send a trace, with this server's own S3 endpoint filled in.

export function uploadCommand(endpoint: string): string {
  return [
    "uv run python scripts/upload_trace.py ./my-trace --run-name my-trace \\",
    `  --endpoint ${endpoint} --meta trace_gpu_arch=sm_90`,
  ].join("\n");
}

/** The bundled trace of eight kernels, which names its architecture itself. */
export function demoCommand(endpoint: string): string {
  return ["uv run python scripts/upload_trace.py examples/demo-trace --run-name demo \\", `  --endpoint ${endpoint}`].join("\n");
}

export function profilerCommand(endpoint: string): string {
  return [
    "cascade-profiler stream --model facebook/opt-125m \\",
    "  --layers model.decoder.layers.10.self_attn \\",
    '  --prompt "Hello, my name is" --max-tokens 4 \\',
    `  --s3-endpoint ${endpoint} --s3-bucket cascade --s3-addressing-style path`,
  ].join("\n");
}
