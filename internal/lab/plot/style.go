package plot

import "html/template"

// Style is the style sheet of a page with plots: seven colours of series (s0 to s6), tables, and colours for good and
// bad. On paper, dashes distinguish lines, too.
const Style template.CSS = `
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2128;--dim:#667;--line:#dde;--s0:#2563eb;--s1:#b7791f;--s2:#8a94a6;--s3:#be185d;--s4:#0f766e;--s5:#7c3aed;--s6:#65a30d;--good:#15803d;--bad:#b91c1c}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6e8eb;--dim:#9aa3af;--line:#2c323b;--s0:#7aa8ff;--s1:#e3b45c;--s2:#707a89;--s3:#f472b6;--s4:#2dd4bf;--s5:#b794f4;--s6:#a3e635;--good:#4ade80;--bad:#f87171}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);max-width:76rem;margin:2rem auto;padding:0 1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2),.t{text-align:left}
th{color:var(--dim);font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}.dim{color:var(--dim)}
figure{margin:1.5rem 0;max-width:46rem}figcaption{font-weight:600;margin-bottom:.4rem}
svg{width:100%;height:auto;overflow:visible}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.s0{fill:var(--s0)}.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}.s5{fill:var(--s5)}.s6{fill:var(--s6)}
.l0,.l1,.l2,.l3,.l4,.l5,.l6{fill:none;stroke-width:2}.l0{stroke:var(--s0)}.l1{stroke:var(--s1)}.l2{stroke:var(--s2)}.l3{stroke:var(--s3)}.l4{stroke:var(--s4)}.l5{stroke:var(--s5)}.l6{stroke:var(--s6)}
.g{stroke:var(--line)}.w{stroke:var(--fg);stroke-width:1.2}
.key{margin:.2rem 0}.key:empty{display:none}.key span{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .4em 0 1em;print-color-adjust:exact;-webkit-print-color-adjust:exact}
@media print{:root{--bg:#fff;--fg:#000;--dim:#333;--line:#bbb;--s0:#2563eb;--s1:#b7791f;--s2:#8a94a6;--s3:#be185d;--s4:#0f766e;--s5:#7c3aed;--s6:#65a30d;--good:#15803d;--bad:#b91c1c}
body{font-size:10pt;margin:0;max-width:none}figure,tr{break-inside:avoid}.scroll{overflow:visible}table{font-size:8pt}th,td{padding:.15rem .35rem;white-space:normal}
.l1{stroke-dasharray:7 3}.l2{stroke-dasharray:2 3}.l3{stroke-dasharray:9 3 2 3}.l4{stroke-dasharray:4 2}.l5{stroke-dasharray:1 2}.l6{stroke-dasharray:12 4}}
`
