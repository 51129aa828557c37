package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMessageReference holds docs/reference/messages.md to the messages of internal/config/analyze.
func TestMessageReference(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "internal/config/analyze/*.go"))
	require.NoError(t, err)
	rows := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		messagesOf(f, rows)
	}
	var b strings.Builder
	b.WriteString(messagesIntro)
	for _, severity := range []string{"error", "warning", "info"} {
		require.NotEmpty(t, rows[severity])
		fmt.Fprintf(&b, "### %s\n\n| Field | Message |\n|---|---|\n", strings.ToUpper(severity[:1])+severity[1:])
		slices.Sort(rows[severity])
		b.WriteString(strings.Join(slices.Compact(rows[severity]), ""))
		b.WriteString("\n")
	}
	holdReference(t, "messages.md", strings.TrimRight(b.String(), "\n")+"\n")
}

var (
	reporters = map[string]string{"errorf": "error", "warnf": "warning", "infof": "info", "Errorf": "error", "Warnf": "warning", "Infof": "info"}
	verb      = regexp.MustCompile(`%(\[\d+\])?[a-z]`)
)

// messagesOf adds a row for each message with a text of its own.
func messagesOf(f *ast.File, rows map[string][]string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 || reporters[calledName(call)] == "" {
			return true
		}
		message := verb.ReplaceAllString(text(call.Args[2]), "…")
		if strings.Trim(message, "…") == "" {
			return true
		}
		severity := reporters[calledName(call)]
		rows[severity] = append(rows[severity], fmt.Sprintf("| %s | %s |\n", fieldText(call.Args[1]), cell(message)))
		return true
	})
}

// fieldText is the field that a message is about, as far as the source has it.
func fieldText(e ast.Expr) string {
	field := text(e)
	if call, ok := e.(*ast.CallExpr); ok && calledName(call) == "Sprintf" {
		field = strings.ReplaceAll(text(call.Args[0]), "[%d]", "[]")
	}
	if field = strings.TrimPrefix(field, "."); field == "" || strings.Contains(field, "%") {
		return ""
	}
	return "`" + field + "`"
}

const messagesIntro = `# Messages about configuration

The same messages appear in ` + "`moonsail analyze`" + `, in the log, at ` + "`/debug/problems`" + `, in the answers of the validating webhook,
and with ` + "`--status`" + ` in the condition ` + "`Reconciled`" + ` of the object. Messages have no codes. A message names its place first:

` + "```" + `
FILE:LINE: SEVERITY: KIND/NAMESPACE/NAME: FIELD: MESSAGE
` + "```" + `

The message states the problem, and after a semicolon what to do.

## Severities

| Severity | About one object | Between objects |
|---|---|---|
| error | The object is not used. Its last good version stays in force. | Requests fail, or go elsewhere than written. |
| warning | The field has no effect, or the object is salvaged in part. | Something has no effect. |
| info | The configuration can be clearer. | The configuration can be clearer, or depends on what Moonsail cannot see. |

` + "`moonsail analyze`" + ` ends with status 1 if there is an error, and with 0 otherwise.

## Messages about one object

The decoder reports them. [istio-compatibility.md](istio-compatibility.md) lists the messages about single fields.

| Category | Example | What to do |
|---|---|---|
| The document is not an object | ` + "`is not valid YAML`, `has no kind`" + ` | Correct the syntax, or add apiVersion and kind. |
| Unknown kind or version | ` + "`unknown apiVersion \"networking.istio.oi/v1\"; did you mean ...?`" + ` | Write the kind or version that the message names. |
| Unknown field | ` + "`unknown field; did you mean \"weight\"?`" + ` | Correct the spelling. Kubernetes drops unknown fields in silence. |
| Wrong type | ` + "`must be a string, got the number 5; put it in quotes: \"5\"`" + ` | Write the value in the form that the message shows. |
| Invalid value | ` + "`0 is not a port; use 1 to 65535`" + ` | Use a value of the range or list in the message. |
| Fields that exclude each other | ` + "`cannot be combined with route; split the rule in two`" + ` | Keep one of them. |
| Missing field | ` + "`is missing; name the service to send to`" + ` | Add the field. |
| Not supported | ` + "`has no effect in Moonsail yet`" + ` | Use the alternative that the message names, or accept that nothing happens. |

## Messages between objects

` + "`…`" + ` stands for a name, a number or a list.

`
