// Files from the server. The token goes in a header, so a plain link cannot fetch
// them: the body is read here and handed to the browser as a file.
import { client } from "./session";

/** Saves the response of `path` as `name`. Throws what the client throws. */
export async function download(path: string, name: string): Promise<void> {
  const response = await client.open(path);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The click starts the save; the address must live until the browser took it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const PREVIEW_LINES = 200;
/** spec: reading-results, Outputs: larger files have no preview. */
export const PREVIEW_LIMIT_BYTES = 16 * 1024 * 1024;

export function canPreview(name: string, size: number): boolean {
  return size <= PREVIEW_LIMIT_BYTES && /\.(csv|txt|log)(\.gz)?$/.test(name);
}

export interface Preview {
  readonly lines: readonly string[];
  /** False when the file has more lines than the preview shows. */
  readonly whole: boolean;
}

/** What a preview reads of a file: a packed one may hold a thousand times its size, and that in one line. */
const PREVIEW_CHARS = 2 ** 20;

/** The first lines of a text file, unpacked on the way; stops reading as soon as it has them. */
export async function previewFile(path: string, name: string): Promise<Preview> {
  const response = await client.open(path);
  if (response.body === null) return { lines: [], whole: true };
  const bytes: ReadableStream<BufferSource> = response.body;
  const plain = name.endsWith(".gz") ? bytes.pipeThrough(new DecompressionStream("gzip")) : bytes;
  return firstLines(plain.pipeThrough(new TextDecoderStream()).getReader(), PREVIEW_LINES);
}

async function firstLines(reader: ReadableStreamDefaultReader<string>, limit: number): Promise<Preview> {
  const lines: string[] = [];
  let rest = "";
  let read = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      if (rest !== "") lines.push(rest);
      return { lines, whole: true };
    }
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) lines.push(part);
    read += value.length;
    if (lines.length > limit || read >= PREVIEW_CHARS) {
      await reader.cancel();
      return { lines: [...lines, rest].slice(0, limit), whole: false };
    }
  }
}
