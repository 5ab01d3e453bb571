// Light, dark or as the system says; the choice is kept in this browser.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const THEME_KEY = "cascade.theme";

export const theme = signal<Theme>(stored());
/** Counts changes of the effective colours, so that canvases draw themselves again. */
export const themeVersion = signal(0);

export function setTheme(next: Theme): void {
  theme.value = next;
  try {
    localStorage.setItem(THEME_KEY, next);
  } catch {
    // storage is blocked: the choice lasts as long as the page
  }
  apply();
}

export function startTheme(): void {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    themeVersion.value += 1;
  });
}

function apply(): void {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  themeVersion.value += 1;
}

function stored(): Theme {
  try {
    const value = localStorage.getItem(THEME_KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}
