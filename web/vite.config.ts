// Build and development settings. In development every /api call goes to the
// fake server of dev/fake-server.mjs, or to CASCADE_URL where one is given.
import { defineConfig } from "vitest/config";

// `cascade web build` builds beside the present build and swaps the two when it is done.
const out = process.env["DASHBOARD_OUT"] ?? "dist";
const api = process.env["CASCADE_URL"] ?? "http://127.0.0.1:8787";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { outDir: out, target: "es2022", assetsInlineLimit: 0, sourcemap: false },
  worker: { format: "es" },
  server: { proxy: { "/api": { target: api, changeOrigin: true } } },
  // A machine that does much else at once is slow, not wrong; one test makes 40 MB of names.
  test: { include: ["src/**/*.test.ts"], environment: "node", testTimeout: 60_000, hookTimeout: 60_000 },
});
