package compare

import (
	"html/template"
	"io"
	"strings"
)

// WriteHTML writes a report as a page without references to others.
func WriteHTML(w io.Writer, r *Report) error { return page.Execute(w, r) }

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"lines": func(list []string) string { return strings.Join(list, "\n") },
}).Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>moonsail compare: {{.Left}} and {{.Right}}</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #8886; overflow-wrap: anywhere; }
section { border: 1px solid #8886; border-radius: .5rem; padding: .2rem 1rem 1rem; margin: 1rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.good { color: #1a7f37; } .bad { color: #cf222e; }
</style>
</head>
<body>
<h1>{{.Left}} and {{.Right}}</h1>
<p class="{{if .Same}}good{{else}}bad{{end}}"><strong>{{.Summary}}</strong></p>
{{range .Notes}}<p>{{.}}</p>
{{end}}{{range .OnlyLeft}}<p>Not compared: {{.}} is only in {{$.Left}}.</p>
{{end}}{{range .OnlyRight}}<p>Not compared: {{.}} is only in {{$.Right}}.</p>
{{end}}{{range .Differences}}<section>
<h2>{{index .Calls 0}}</h2>
<p>{{.Count}} of these calls{{if .Objects}}, decided by {{range $i, $o := .Objects}}{{if $i}}, {{end}}<code>{{$o}}</code>{{end}}{{end}}.
{{with .Deliberate}}On purpose: {{.Reason}} <code>{{.Page}}</code>{{end}}</p>
<table>
<tr><th>what</th><th>{{$.Left}}</th><th>{{$.Right}}</th></tr>
{{range .Changes}}<tr><td>{{.What}}</td><td>{{.Left}}</td><td>{{.Right}}</td></tr>
{{end}}</table>
<details><summary>calls and proxies</summary><pre>{{lines .Calls}}

at {{lines .Proxies}}</pre></details>
</section>
{{end}}{{if .Undecided}}<h2>Undecided</h2>
<table>
<tr><th>side</th><th>calls</th><th>reason</th><th>for example</th></tr>
{{range .Undecided}}<tr><td>{{.Side}}</td><td>{{.Count}}</td><td>{{.Reason}}</td><td>{{.Call}} at {{.Proxy}}</td></tr>
{{end}}</table>
{{end}}</body>
</html>
`))
