// Searching a full log. Text is split on "\n" only: other separators (U+2028, a
// bare carriage return) are part of a line.

export interface LogLines {
  readonly lines: readonly string[];
  readonly bytes: number;
}

/** Collects a streamed log without ever joining it into one string. */
export class LineCollector {
  private readonly lines: string[] = [];
  private rest: string[] = [];
  private size = 0;

  push(text: string): void {
    this.size += text.length;
    if (!text.includes("\n")) {
      this.rest.push(text);
      return;
    }
    const parts = (this.rest.join("") + text).split("\n");
    this.rest = [parts.pop() ?? ""];
    for (const part of parts) this.lines.push(part);
  }

  end(): LogLines {
    const last = this.rest.join("");
    if (last !== "") this.lines.push(last);
    this.rest = [];
    return { lines: this.lines, bytes: this.size };
  }
}

export type Matcher = (line: string) => boolean;

/** Null for an empty search; an error text where the expression does not parse. */
export function matcherFor(text: string, regex: boolean): Matcher | null | { readonly problem: string } {
  if (text === "") return null;
  if (!regex) {
    const wanted = text.toLowerCase();
    return (line) => line.toLowerCase().includes(wanted);
  }
  try {
    const expression = new RegExp(text, "i");
    return (line) => expression.test(line);
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}

export function findLines(lines: readonly string[], matches: Matcher): number[] {
  const found: number[] = [];
  lines.forEach((line, i) => {
    if (matches(line)) found.push(i);
  });
  return found;
}
