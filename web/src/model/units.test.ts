import { describe, expect, test } from "vitest";
import { formatAge, formatBytes, formatCount, formatExact, formatMs, formatNs, formatRate, formatSignedPercent, formatSpan, plural } from "./units";

describe("numbers use the largest unit above 1", () => {
  test.each([
    [0, "0 ns"],
    [0.4, "0.400 ns"],
    [999, "999 ns"],
    [999.96, "1.00 µs"],
    [1000, "1 µs"],
    [5454.063604240282, "5.45 µs"],
    [262_140_000, "262 ms"],
    [1.5e9, "1.50 s"],
    [90e9, "1.50 min"],
    [7200e9, "2 h"],
  ])("%d ns is %s", (ns, text) => expect(formatNs(ns)).toBe(text));

  test.each([
    [13_065_268, "13.1 MB"],
    [415e6, "415 MB"],
    [2, "2 B"],
  ])("%d bytes are %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  test("milliseconds, counts and rates", () => {
    expect(formatMs(0.24)).toBe("240 µs");
    expect(formatMs(1040.662)).toBe("1.04 s");
    expect(formatCount(76_713)).toBe("76.7 k");
    expect(formatRate(510_774, " inst")).toBe("511 k inst/s");
    expect(formatExact(26_560_256)).toBe("26,560,256");
  });

  test.each([null, undefined, Number.NaN, Number.POSITIVE_INFINITY])("%s is a dash, never a zero", (value) => {
    expect(formatNs(value)).toBe("–");
    expect(formatExact(value)).toBe("–");
  });
});

test("errors are signed, and a zero error has no sign", () => {
  expect(formatSignedPercent(3.0204)).toBe("+3.02%");
  expect(formatSignedPercent(-14.237)).toBe("−14.2%");
  expect(formatSignedPercent(0)).toBe("0%");
});

describe("ages tick in whole units", () => {
  const now = Date.parse("2026-11-08T09:00:00Z");
  test.each([
    [-3, "now"],
    [0.2, "now"],
    [12, "12 s"],
    [59.9, "59 s"],
    [61, "1 min"],
    [7300, "2 h"],
    [3 * 86_400, "3 d"],
  ])("%d seconds ago is %s", (seconds, text) => expect(formatAge(now - seconds * 1000, now)).toBe(text));
  test("no moment, no age", () => expect(formatAge(null, now)).toBe("–"));
});

test("spans have at most two units", () => {
  expect(formatSpan(42_000)).toBe("42 s");
  expect(formatSpan(185_000)).toBe("3 min 5 s");
  expect(formatSpan(7_800_000)).toBe("2 h 10 min");
});

test("counts of things", () => {
  expect(plural(1, "sim")).toBe("1 sim");
  expect(plural(1200, "sim")).toBe("1,200 sims");
});
