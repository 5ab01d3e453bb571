// The page around every view: the rail with its navigation, the theme switch,
// and the line that says when the server is away.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { formatSpan } from "../model/units";
import { route } from "../router";
import { now } from "../state/clock";
import { access, health, logOut, unreachableSince } from "../state/session";
import type { Theme } from "../state/theme";
import { setTheme, theme } from "../state/theme";

const PLACES: ReadonlyArray<{ href: string; label: string; views: readonly string[] }> = [
  { href: "/traces", label: "Traces", views: ["traces", "trace", "new-run"] },
  { href: "/runs", label: "Runs", views: ["runs", "run", "sim", "log", "kernels"] },
  { href: "/compare", label: "Compare", views: ["compare"] },
  { href: "/simulator", label: "Request simulator", views: ["simulator"] },
];

export function Frame({ children }: { children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  const view = route.value.view;
  // A sim opens beside its run: that is the same page, and the drawer takes the focus itself.
  const page = view === "sim" ? "run" : view;
  const first = useRef(true);
  useEffect(() => {
    // A new view is announced by moving the focus to it, except on the first load.
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [page]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to content
      </a>
      <ConnectionNote />
      <div class="frame">
        <header class="rail">
          <Brand />
          <nav aria-label="Main">
            {PLACES.map((place) => (
              <a key={place.href} href={place.href} aria-current={place.views.includes(view) ? "page" : undefined}>
                {place.label}
              </a>
            ))}
          </nav>
          <div class="rail-foot">
            <ThemeSwitch />
            {health.value?.auth !== false && access.value === "open" && (
              <button type="button" class="tiny quiet muted" onClick={logOut}>
                Log out
              </button>
            )}
          </div>
        </header>
        <main id="main" ref={main} tabIndex={-1}>
          {children}
        </main>
      </div>
    </>
  );
}

export function Brand() {
  return (
    <a class="brand" href="/">
      <svg width="28" height="28" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="7" fill="#0b6e78" />
        <path d="M7 9h8M11 16h9M15 23h10" stroke="#fff" stroke-width="3" stroke-linecap="round" />
      </svg>
      <span>
        <strong>Cascade</strong>
        {health.value?.workspace ? <span class="small muted">{health.value.workspace}</span> : null}
      </span>
    </a>
  );
}

const THEMES: ReadonlyArray<readonly [Theme, string]> = [
  ["system", "Auto"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function ThemeSwitch() {
  return (
    <div class="segmented" role="group" aria-label="Colours">
      {THEMES.map(([value, label]) => (
        <button key={value} type="button" aria-pressed={theme.value === value} onClick={() => setTheme(value)}>
          {label}
        </button>
      ))}
    </div>
  );
}

function ConnectionNote() {
  const since = unreachableSince.value;
  // Read on every drawing, or the line would never hear of a tick. Both moments are by this browser's clock.
  const away = since === null || now.value === 0 ? 0 : Date.now() - since;
  return (
    <div role="status" aria-live="polite">
      {since !== null && (
        <div class="connection" data-testid="offline">
          The server doesn't answer{away > 2000 ? ` (for ${formatSpan(away)})` : ""}. What you see may be old; Cascade tries again by itself.
        </div>
      )}
    </div>
  );
}
