// Problems of the configuration, with their places and fields.

import type { Problems } from "./api";
import { byId, el, objectName, row, table } from "./dom";
import { redraw } from "./redraw";

// count returns the number of problems.
export function count(p: Problems): number {
  return (p.problems.config?.length ?? 0) + (p.problems.translation?.length ?? 0);
}

// showProblems draws the problems, or hides the section.
export function showProblems(p: Problems): void {
  const rows = (p.problems.config ?? []).map((x) => {
    const where = x.file ? `${x.file}${x.line ? `:${x.line}` : ""}` : "";
    return row(
      el("span", x.severity === "error" ? "bad" : "warn", x.severity),
      x.object?.kind ? objectName(x.object) : where,
      x.field ?? "",
      x.message,
    );
  });
  for (const x of p.problems.translation ?? []) rows.push(row(el("span", "bad", "error"), x.name, x.group, x.error));
  byId("problems-section").hidden = rows.length === 0;
  redraw(byId("problems"), table(["", "object", "field", "what"], rows));
}
