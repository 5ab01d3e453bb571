// Readable kernel names. Only what a reader needs of the Itanium C++ ABI: the
// qualified name without template arguments and parameters, which is also the
// form that the Perfetto file uses, plus the type names that tell two instances
// of one template apart. A name that does not parse is shown as it is.

export interface ReadableName {
  /** Such as `at::native::vectorized_elementwise_kernel`. */
  readonly full: string;
  /** The last component: `vectorized_elementwise_kernel`. */
  readonly short: string;
  /** Types in the template arguments that tell instances apart, such as `FillFunctor`; may be empty. */
  readonly hint: string;
}

const cache = new Map<string, ReadableName>();
/** A run has at most a few hundred distinct kernels; the bound only guards against a hostile trace. */
const CACHE_LIMIT = 20_000;

/** Never throws; the same object for the same name. */
export function readableName(mangled: string): ReadableName {
  const known = cache.get(mangled);
  if (known !== undefined) return known;
  const name = parse(mangled);
  if (cache.size >= CACHE_LIMIT) cache.clear();
  cache.set(mangled, name);
  return name;
}

function parse(mangled: string): ReadableName {
  const trimmed = mangled.trim();
  if (trimmed === "") return { full: "(unnamed kernel)", short: "(unnamed kernel)", hint: "" };
  const plain: ReadableName = { full: trimmed, short: trimmed, hint: "" };
  const words = trimmed.split(" ");
  if (words.length > 1 && words.every((word) => word.startsWith("_Z"))) return joined(words.map((word) => parse(word)));
  if (!trimmed.startsWith("_Z")) return /[(<]/.test(trimmed) ? stripped(trimmed) : plain;
  const reader = new NameReader(trimmed, 2);
  try {
    return named(reader.encoding(), reader.seen) ?? plain;
  } catch (error) {
    // A name that was cut or edited behind the function's own name still reads well.
    if (error instanceof Unreadable) return named(reader.beforeArguments, []) ?? plain;
    throw error;
  }
}

function named(parts: readonly string[], seen: readonly string[]): ReadableName | null {
  const short = parts.at(-1);
  return short === undefined ? null : { full: parts.join("::"), short, hint: hintOf(seen) };
}

/** Concurrent kernels share one line of the log, and so one name. */
function joined(names: readonly ReadableName[]): ReadableName {
  return { full: names.map((name) => name.full).join(", "), short: names.map((name) => name.short).join(", "), hint: "" };
}

/** A name that came demangled: `void ns::name<...>(...)` is `ns::name`. */
function stripped(text: string): ReadableName {
  const head = text.split(/[(<]/, 1)[0] ?? "";
  const full = head.trim().split(" ").at(-1) ?? "";
  return full === "" ? { full: text, short: text, hint: "" } : { full, short: full.split("::").at(-1) ?? full, hint: "" };
}

const TELLING = /functor|_op|op$|ops$|kernel_impl|epilogue|collective|policy|^Flash/i;

function hintOf(seen: readonly string[]): string {
  return seen.find((name) => TELLING.test(name)) ?? "";
}

class Unreadable extends Error {}

/** Names, argument lists and types inside one another. Compilers stay far below; a name that was made up must not exhaust the stack. */
const MOST_NESTED = 300;

/** A recursive descent over one mangled name; `seen` collects the type names inside template arguments. */
class NameReader {
  readonly seen: string[] = [];
  /** The function's qualified name, once its template arguments began. */
  beforeArguments: readonly string[] = [];
  private depth = 0;
  /** Template argument lists that are open here. */
  private lists = 0;

  constructor(
    private readonly text: string,
    private at: number,
  ) {}

  /** The components of the function's qualified name. */
  encoding(): string[] {
    const parts = this.name();
    if (parts.length === 0) throw new Unreadable();
    return parts;
  }

  private peek(): string {
    return this.text.charAt(this.at);
  }

  private take(): string {
    const char = this.text.charAt(this.at);
    if (char === "") throw new Unreadable();
    this.at += 1;
    return char;
  }

  /** Every way into a nested part leads through here. */
  private deeper<T>(read: () => T): T {
    this.depth += 1;
    if (this.depth > MOST_NESTED) throw new Unreadable();
    const value = read();
    this.depth -= 1;
    return value;
  }

  private name(): string[] {
    return this.deeper(() => this.nameBody());
  }

  private nameBody(): string[] {
    if (this.peek() === "N") return this.nested();
    if (this.peek() === "Z") {
      this.at += 1;
      const outer = this.name();
      this.skipTo("E");
      if (this.peek() === "s") return outer;
      return [...outer, ...this.name()];
    }
    const parts = this.unqualified();
    if (this.peek() === "I") this.argumentsOf(parts);
    return parts;
  }

  private unqualified(): string[] {
    if (this.text.startsWith("St", this.at)) {
      this.at += 2;
      return ["std", ...this.deeper(() => this.unqualified())];
    }
    if (this.peek() === "L") this.at += 1; // internal linkage
    if (this.peek() === "U") return this.unnamed();
    if (this.text.startsWith("cl", this.at)) {
      this.at += 2;
      return ["operator()"]; // the body of a lambda or a functor
    }
    return [this.sourceName()];
  }

  private unnamed(): string[] {
    this.at += 1;
    if (this.take() === "l") this.skipTo("E"); // a lambda with its parameters
    while (this.peek() !== "_") this.take();
    this.at += 1;
    return ["lambda"];
  }

  private sourceName(): string {
    const start = this.at;
    while (/\d/.test(this.peek())) this.at += 1;
    const length = Number(this.text.slice(start, this.at));
    if (start === this.at || length === 0 || this.at + length > this.text.length) throw new Unreadable();
    const name = this.text.slice(this.at, this.at + length);
    if (name.startsWith("_GLOBAL__N")) {
      // Traces are published with the file's hash cut out of this component, and its length as it was: then a name
      // with a length of its own begins inside.
      const shortened = /^_GLOBAL__N_\w*?_cu(?=\d+[A-Za-z_]\w)/.exec(this.text.slice(this.at));
      this.at += shortened !== null && shortened[0].length < length ? shortened[0].length : length;
      return "(anonymous)";
    }
    this.at += length;
    return name;
  }

  private nested(): string[] {
    this.at += 1;
    while (/[rVKRO]/.test(this.peek())) this.at += 1;
    const parts: string[] = [];
    for (;;) {
      const next = this.peek();
      if (next === "E") {
        this.at += 1;
        return parts.filter((part) => part !== "(anonymous)");
      }
      if (next === "I") this.argumentsOf(parts);
      else if (next === "S") parts.push(...this.substitution());
      else if (next === "T") this.skipParameter();
      else if (next === "C" || next === "D") this.at += 2; // constructor or destructor
      else parts.push(...this.unqualified());
    }
  }

  private substitution(): string[] {
    this.at += 1;
    const kind = this.take();
    const known: Record<string, string> = { t: "std", a: "allocator", s: "string", b: "string", i: "istream", o: "ostream", d: "iostream" };
    if (kind in known) return [known[kind] ?? ""];
    if (kind !== "_") {
      while (this.peek() !== "_") this.take();
      this.at += 1;
    }
    return [];
  }

  private skipParameter(): void {
    this.at += 1;
    while (this.peek() !== "_") this.take();
    this.at += 1;
  }

  private argumentsOf(parts: readonly string[]): void {
    if (this.lists === 0) this.beforeArguments = parts.filter((part) => part !== "(anonymous)");
    this.templateArgs();
  }

  private templateArgs(): void {
    this.at += 1;
    this.lists += 1;
    this.deeper(() => {
      while (this.peek() !== "E") this.templateArg();
    });
    this.lists -= 1;
    this.at += 1;
  }

  private templateArg(): void {
    const next = this.peek();
    if (next === "L") this.literal();
    else if (next === "X") this.skipBalanced();
    else if (next === "J") this.templateArgs();
    else this.type();
  }

  private literal(): void {
    this.at += 1;
    if (this.text.startsWith("_Z", this.at)) {
      this.at += 2;
      this.name();
    } else {
      this.type();
    }
    this.skipTo("E");
  }

  private skipTo(end: string): void {
    const index = this.text.indexOf(end, this.at);
    if (index < 0) throw new Unreadable();
    this.at = index + 1;
  }

  /** X <expression> E: expressions are rare in kernel names, so only the nesting is followed. */
  private skipBalanced(): void {
    let depth = 0;
    do {
      const next = this.peek();
      if (/\d/.test(next)) {
        this.sourceName();
        continue;
      }
      this.take();
      if ("XNIJL".includes(next)) depth += 1;
      else if (next === "E") depth -= 1;
    } while (depth > 0);
  }

  private type(): void {
    this.deeper(() => this.typeBody());
  }

  private typeBody(): void {
    const next = this.peek();
    if (/[PROKVrCG]/.test(next)) {
      this.at += 1;
      return this.type();
    }
    if (next === "N" || next === "Z") return this.note(this.name());
    if (/\d/.test(next)) return this.note(this.name());
    if (next === "S") {
      if (this.text.startsWith("St", this.at)) this.note(this.unqualified());
      else this.substitution();
      if (this.peek() === "I") this.templateArgs();
      return;
    }
    if (next === "T") {
      this.skipParameter();
      if (this.peek() === "I") this.templateArgs();
      return;
    }
    if (next === "F") {
      this.at += 1;
      while (this.peek() !== "E") this.type();
      this.at += 1;
      return;
    }
    if (next === "A") {
      this.skipTo("_");
      return this.type();
    }
    if (next === "M") {
      this.at += 1;
      this.type();
      return this.type();
    }
    if (next === "D") {
      const kind = this.text.charAt(this.at + 1);
      this.at += 2;
      if (kind === "p") this.type();
      else if (kind === "v") {
        this.skipTo("_");
        this.type();
      } else if (kind === "F") this.skipTo("_");
      else if (kind === "T" || kind === "t") {
        this.skipTo("E");
      }
      return;
    }
    if (next === "u") {
      this.at += 1;
      this.sourceName();
      return;
    }
    if (/[a-z]/.test(next)) {
      this.at += 1;
      return;
    }
    throw new Unreadable();
  }

  private note(parts: readonly string[]): void {
    const last = parts.at(-1);
    if (last !== undefined) this.seen.push(last);
  }
}
