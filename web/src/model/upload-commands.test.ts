import { describe, expect, test } from "vitest";
import { demoCommand, profilerCommand, uploadCommand } from "./upload-commands";

const ENDPOINT = "https://s3.example.com";

describe("the commands that send a trace", () => {
  test("all name this server's endpoint", () => {
    expect(uploadCommand(ENDPOINT)).toContain(`--endpoint ${ENDPOINT} `);
    expect(demoCommand(ENDPOINT)).toMatch(/examples\/demo-trace --run-name demo [^]*--endpoint https:\/\/s3.example.com$/);
    expect(profilerCommand(ENDPOINT)).toContain(`--s3-endpoint ${ENDPOINT} `);
  });

  test("a workload is streamed by the profiler that comes with Cascade", () => {
    expect(profilerCommand(ENDPOINT)).toMatch(/^cascade-profiler stream --model /);
  });

  test("every line but the last goes on", () => {
    for (const command of [uploadCommand(ENDPOINT), demoCommand(ENDPOINT), profilerCommand(ENDPOINT)]) {
      const lines = command.split("\n");
      expect(lines.map((line) => line.endsWith(" \\"))).toEqual(lines.map((_, index) => index < lines.length - 1));
    }
  });
});
