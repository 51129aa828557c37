// Problems of the configuration, with their places and fields.

import type { Problem, Problems } from "./api";
import { byId, el, mostRows, objectName, row, table } from "./dom";
import { redraw } from "./redraw";

// placeOf returns the file and line of a problem, as far as they are known.
export function placeOf(x: Problem): string {
  return x.file ? `${x.file}${x.line ? `:${x.line}` : ""}` : "";
}

// count returns the number of problems.
export function count(p: Problems): number {
  return (p.problems.config?.length ?? 0) + (p.problems.translation?.length ?? 0);
}

// showProblems draws the problems, errors first, or hides the section.
export function showProblems(p: Problems): void {
  const config = (p.problems.config ?? []).map((x) => {
    const where = placeOf(x);
    const subject = x.object?.kind ? [objectName(x.object), where] : [where];
    return { severity: x.severity, texts: [subject.filter(Boolean).join(" at "), x.field ?? "", x.message] };
  });
  const translation = (p.problems.translation ?? []).map((x) => ({ severity: "error", texts: [x.name, x.group, x.error] }));
  const all = [...config, ...translation].sort((a, b) => Number(b.severity === "error") - Number(a.severity === "error"));
  const rows = all.slice(0, mostRows).map((x) => row(el("span", x.severity === "error" ? "bad" : "warn", x.severity), ...x.texts));
  byId("problems-section").hidden = rows.length === 0;
  const parts = [table(["", "object", "field", "what"], rows)];
  if (all.length > mostRows) parts.push(el("p", "dim", `and ${all.length - mostRows} more, in /debug/problems`));
  redraw(byId("problems"), ...parts);
}
