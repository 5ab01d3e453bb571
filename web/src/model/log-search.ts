// Searching a full log. Text is split on "\n" only: other separators (U+2028, a
// bare carriage return) are part of a line.

export interface LogLines {
  /** The last ones. */
  readonly lines: readonly string[];
  /** Lines before them that the page let go. */
  readonly dropped: number;
  /** Of the whole log. */
  readonly bytes: number;
}

/** What a page keeps of a log. Accel-Sim prints some 350 kB a kernel of an H100, and a trace has hundreds of kernels. */
export const MOST_LOG_CHARS = 64e6;

/** Collects the end of a streamed log without ever joining it into one string. */
export class LineCollector {
  private lines: string[] = [];
  /** Characters in `lines`. */
  private held = 0;
  private dropped = 0;
  /** The beginning of a line whose end has not come. */
  private rest: string[] = [];
  private restHeld = 0;
  private bytes = 0;

  constructor(private readonly most = MOST_LOG_CHARS) {}

  /** The log's next `bytes` bytes, decoded. */
  push(text: string, bytes: number): void {
    this.bytes += bytes;
    const parts = text.split("\n");
    const last = parts.pop() ?? "";
    for (const part of parts) {
      this.begin(part);
      this.endLine();
    }
    this.begin(last);
    // Not at every line: letting go moves all that stay.
    if (this.held > this.most * 1.25) this.letGo();
  }

  end(): LogLines {
    if (this.restHeld > 0) this.endLine();
    this.letGo();
    return { lines: this.lines, dropped: this.dropped, bytes: this.bytes };
  }

  private begin(text: string): void {
    this.rest.push(text);
    this.restHeld += text.length;
    if (this.restHeld <= this.most * 1.25) return;
    // A line without an end: its own end is kept, like the log's.
    this.rest = [this.rest.join("").slice(-this.most)];
    this.restHeld = this.most;
  }

  private endLine(): void {
    this.lines.push(this.rest.length === 1 ? (this.rest[0] ?? "") : this.rest.join(""));
    this.held += this.restHeld;
    this.rest = [];
    this.restHeld = 0;
  }

  private letGo(): void {
    let count = 0;
    for (; this.held > this.most && count < this.lines.length - 1; count += 1) this.held -= this.lines[count]?.length ?? 0;
    this.lines.splice(0, count);
    this.dropped += count;
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
