// The banners that say where numbers come from, above the numbers.
import type { Notice, NoticeKind } from "../model/engine";
import { Banner } from "./basics";

const TONE: Record<NoticeKind, "info" | "warn"> = { sample: "info", estimate: "info", replay: "warn", "stand-in": "warn" };

export function Notices({ notices }: { notices: readonly Notice[] }) {
  return (
    <>
      {notices.map((notice) => (
        <Banner key={notice.title} tone={TONE[notice.kind]} title={notice.title} testid={`notice-${notice.kind}`}>
          <p>{notice.text}</p>
          {notice.signs.length > 0 && (
            <ul>
              {notice.signs.map((sign) => (
                <li key={sign}>{sign}</li>
              ))}
            </ul>
          )}
        </Banner>
      ))}
    </>
  );
}
