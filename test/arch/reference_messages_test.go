package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/code"
)

// TestMessageReference holds docs/reference/messages.md to the pages of internal/config/code, and to the messages of
// internal/config/analyze.
func TestMessageReference(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "internal/config/analyze/*.go"))
	require.NoError(t, err)
	ids := codesByName(t)
	messages := map[code.Code][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		messagesOf(f, ids, messages)
	}
	require.NotEmpty(t, messages)
	var b strings.Builder
	b.WriteString(messagesIntro)
	b.WriteString("| Code | Message | istioctl analyze |\n|---|---|---|\n")
	for _, p := range code.Pages() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", p.Code, strings.ToLower(string(p.Code)), p.Title, strings.Join(p.Istio, ", "))
	}
	for _, p := range code.Pages() {
		writePage(&b, p, messages[p.Code])
	}
	holdReference(t, "messages.md", strings.TrimRight(b.String(), "\n")+"\n")
}

// writePage writes the section of a code.
func writePage(b *strings.Builder, p code.Page, messages []string) {
	fmt.Fprintf(b, "\n### %s\n\n**%s.** %s\n\n%s\n", p.Code, p.Title, p.Cause, p.Fix)
	if p.Example != "" {
		fmt.Fprintf(b, "\n```yaml\n%s\n```\n", strings.TrimSpace(strings.TrimSuffix(p.Example, "---\n")))
	}
	if len(messages) == 0 {
		return
	}
	slices.Sort(messages)
	b.WriteString("\n")
	for _, m := range slices.Compact(messages) {
		b.WriteString(m)
	}
}

// codesByName returns the codes by the names of their constants.
func codesByName(t *testing.T) map[string]code.Code {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/config/code/code.go"), nil, 0)
	require.NoError(t, err)
	out := map[string]code.Code{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			out[v.Names[0].Name] = code.Code(text(v.Values[0]))
		}
		return true
	})
	return out
}

// TestProblemsHaveCodes checks that no problem is made without a code.
func TestProblemsHaveCodes(t *testing.T) {
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isProblem(lit) {
				require.NotNil(t, valueOf(lit, "Code"), "%s: a problem without a code", path)
			}
			return true
		})
		return nil
	}))
}

// isProblem reports whether a composite literal has a severity of package problem.
func isProblem(lit *ast.CompositeLit) bool {
	severity, ok := valueOf(lit, "Severity").(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := severity.X.(*ast.Ident)
	return ok && of.Name == "problem"
}

// valueOf returns the value of a field in a composite literal; nil: it is not set.
func valueOf(lit *ast.CompositeLit, name string) ast.Expr {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}

var (
	reporters = map[string]string{"errorf": "error", "warnf": "warning", "infof": "info", "missing": "", "elsewhere": ""}
	verb      = regexp.MustCompile(`%(\[\d+\])?[a-z]`)
)

// messagesOf adds a line for each message with a text of its own, by its code.
func messagesOf(f *ast.File, ids map[string]code.Code, messages map[code.Code][]string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 4 || reporters[calledName(call)] == "" {
			return true
		}
		id, ok := call.Args[0].(*ast.SelectorExpr)
		message := verb.ReplaceAllString(text(call.Args[3]), "…")
		if !ok || strings.Trim(message, "… ,:;") == "" {
			return true
		}
		c := ids[id.Sel.Name]
		messages[c] = append(messages[c], fmt.Sprintf("- %s: `%s`\n", reporters[calledName(call)], message))
		return true
	})
}

const messagesIntro = `# Messages about configuration

The same messages appear in ` + "`moonsail analyze`" + `, in the log, at ` + "`/debug/problems`" + `, in the answers of the validating webhook,
and with ` + "`--status`" + ` in the condition ` + "`Reconciled`" + ` of the object. ` + "`moonsail analyze`" + ` writes:

` + "```" + `
FILE:LINE: SEVERITY: KIND/NAMESPACE/NAME: FIELD: MESSAGE [CODE]
` + "```" + `

The message states the problem, and after a semicolon what to do. A code is about one cause with one remedy, and stays the same when
the text changes. ` + "`moonsail analyze --explain CODE`" + ` describes it.

To leave out a message, use the flag, for any number of objects, or an annotation of the object:

` + "```" + `
moonsail analyze config/ --suppress MS1204=VirtualService/reviews.shop --suppress 'MS1301=Service/*.legacy'
` + "```" + `

` + "```yaml" + `
metadata:
  annotations:
    galley.istio.io/analyze-suppress: MS1204, IST0118   # or "*"
` + "```" + `

Codes of istioctl analyze stand for the codes in the same row of the table below.

## Severities

| Severity | About one object | Between objects |
|---|---|---|
| error | The object is not used, and its last good version stays in force. Of a listener: it is not served. | Kubernetes refuses an object, or requests fail or go elsewhere than written. |
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

## Codes

` + "`…`" + ` in a message stands for a name, a number or a list.

`
