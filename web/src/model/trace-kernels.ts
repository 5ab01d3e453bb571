// Sorting and searching a trace's kernel table. Pure.
import { readableName } from "./demangle";
import type { KernelLaunch } from "./entities";

export type KernelSort = "id" | "name" | "grid" | "block" | "instructions";

export function selectKernels(kernels: readonly KernelLaunch[], text: string, sort: KernelSort, descending: boolean): readonly KernelLaunch[] {
  const wanted = text.trim().toLowerCase();
  const found = wanted === "" ? [...kernels] : kernels.filter((kernel) => matches(kernel, wanted));
  const direction = descending ? -1 : 1;
  return found.sort((a, b) => direction * compare(a, b, sort) || a.kernel_id - b.kernel_id);
}

function matches(kernel: KernelLaunch, wanted: string): boolean {
  return String(kernel.kernel_id) === wanted || kernel.name.toLowerCase().includes(wanted) || readableName(kernel.name).full.toLowerCase().includes(wanted);
}

function compare(a: KernelLaunch, b: KernelLaunch, sort: KernelSort): number {
  switch (sort) {
    case "id":
      return a.kernel_id - b.kernel_id;
    case "name":
      return readableName(a.name).full.localeCompare(readableName(b.name).full);
    case "grid":
      return volume(a.grid) - volume(b.grid);
    case "block":
      return volume(a.block) - volume(b.block);
    case "instructions":
      return (a.instructions ?? -1) - (b.instructions ?? -1); // a cut-short kernel sorts as the smallest
  }
}

function volume(dim: readonly number[]): number {
  return dim.reduce((product, part) => product * part, 1);
}
