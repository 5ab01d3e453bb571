// A sim's results, taken apart while they arrive. A kernel's block is some 30 kB
// and a trace has thousands of kernels: the whole answer would be hundreds of
// megabytes of text and more of objects, of which the page shows a few numbers.
import type { KernelStat, SimResults } from "../api/types";

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
/** Open brackets around a kernel: the answer's own and the list's. */
const IN_LIST = 2;

/** Takes the text in pieces; what `keep` makes of each kernel is kept, in the order of the answer. */
export class ResultsReader {
  private readonly kernels: KernelStat[] = [];
  /** The answer without its kernels. */
  private frame = "";
  /** The kernel that is being read. */
  private kernel = "";
  private depth = 0;
  private listed = false;
  private inKernel = false;
  private inText = false;
  private escaped = false;

  constructor(private readonly keep: (kernel: KernelStat) => KernelStat) {}

  push(piece: string): void {
    let from = 0;
    for (let at = 0; at < piece.length; at += 1) {
      const char = piece.charCodeAt(at);
      if (this.inText) {
        if (this.escaped) this.escaped = false;
        else if (char === BACKSLASH) this.escaped = true;
        else if (char === QUOTE) this.inText = false;
      } else if (char === QUOTE) {
        this.inText = true;
      } else if (char === OPEN_OBJECT || char === OPEN_LIST) {
        if (this.listed && this.depth === IN_LIST) {
          this.take(piece.slice(from, at));
          this.inKernel = true;
          from = at;
        }
        this.depth += 1;
        if (char === OPEN_LIST && this.depth === IN_LIST) {
          this.take(piece.slice(from, at));
          from = at;
          this.listed = /"kernels"\s*:\s*$/.test(this.frame);
        }
      } else if (char === CLOSE_OBJECT || char === CLOSE_LIST) {
        if (this.depth === IN_LIST) this.listed = false;
        this.depth -= 1;
        if (this.inKernel && this.depth === IN_LIST) {
          this.take(piece.slice(from, at + 1));
          from = at + 1;
          this.endKernel();
        }
      } else if (char === COMMA && this.listed && this.depth === IN_LIST) {
        this.take(piece.slice(from, at));
        from = at + 1;
      }
    }
    this.take(piece.slice(from));
  }

  /** Throws SyntaxError where the answer broke off. */
  end(): SimResults {
    // The one place where the answer's type is asserted; the server owns its shape.
    return { ...(JSON.parse(this.frame) as SimResults), kernels: this.kernels };
  }

  private take(text: string): void {
    if (this.inKernel) this.kernel += text;
    else this.frame += text;
  }

  private endKernel(): void {
    this.kernels.push(this.keep(JSON.parse(this.kernel) as KernelStat));
    this.kernel = "";
    this.inKernel = false;
  }
}
