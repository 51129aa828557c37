package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// TestHints checks that each command line in messages, help and examples exists and has the flags that it names.
func TestHints(t *testing.T) {
	hints := map[string]string{} // where they are, by command line
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			text := literal(e)
			if !ok || text == "" {
				return true
			}
			for _, line := range commandsIn(text) {
				hints[line] = path
			}
			_, joined := n.(*ast.BinaryExpr)
			return !joined // else its parts would be read again
		})
		return nil
	}))
	require.Greater(t, len(hints), 150)
	for _, line := range slices.Sorted(maps.Keys(hints)) {
		assert.Empty(t, wrongIn(line), "%s: moonsail %s", hints[line], line)
	}
	for line, says := range map[string]string{
		"proxys": `"proxys" is not a command`, "pc clustrs X": `"clustrs" is not a command`, "diff --server": "unknown flag: --server", "proxies -x": "unknown shorthand flag",
	} {
		require.Contains(t, wrongIn(line), says, line)
	}
}

// unknown stands for what is known only at run time. It is a valid number, duration and name.
const unknown = "1s"

// literal returns the text of a string expression; "": it is none.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		left, right := literal(e.X), literal(e.Y)
		if e.Op != token.ADD || left+right == "" {
			return ""
		}
		part := func(text string) string {
			if text == "" {
				return unknown
			}
			return text
		}
		return part(left) + part(right)
	}
	return ""
}

// Command lines are in quotes within a sentence, or on a line of an example, or behind a pipe.
var (
	inQuotes = regexp.MustCompile(`'moonsail ([^']+)'`)
	onLine   = regexp.MustCompile(`(?m)^(?:  |.* \| )moonsail (.+)$`)
	verb     = regexp.MustCompile(`%(\[\d+\])?[a-z]`)
)

// commandsIn returns the arguments of the command lines in a text.
func commandsIn(text string) (out []string) {
	for _, m := range slices.Concat(inQuotes.FindAllStringSubmatch(text, -1), onLine.FindAllStringSubmatch(text, -1)) {
		line := verb.ReplaceAllString(m[1], unknown)
		for _, end := range []string{" | ", " > ", " &", "; ", " # ", " (", "`"} {
			line, _, _ = strings.Cut(line, end)
		}
		if !strings.HasPrefix(line, unknown) && !strings.HasPrefix(line, "COMMAND") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

var words = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// wrongIn returns what is wrong with a command line; "": nothing.
func wrongIn(line string) string {
	var args []string
	for _, w := range words.FindAllString(line, -1) {
		if w != "..." && !strings.HasPrefix(w, "[") {
			args = append(args, strings.Trim(w, `'"`))
		}
	}
	root := NewRootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return strconv.Quote(args[0]) + " is not a command: " + err.Error()
	}
	if len(rest) > 0 && cmd.HasSubCommands() && rest[0] == unknown {
		return "" // some subcommand
	}
	if len(rest) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(rest[0], "-") && !takesArguments(cmd) {
		return strconv.Quote(rest[0]) + " is not a command of " + cmd.CommandPath()
	}
	if err := cmd.ParseFlags(rest); err != nil && strings.Contains(err.Error(), "unknown") {
		return err.Error()
	}
	return ""
}

// takesArguments reports whether a command accepts an argument that is not one of its subcommands.
func takesArguments(cmd *cobra.Command) bool { return cmd.ValidateArgs([]string{unknown}) == nil }

// TestHintsAskTheSame checks that hints of commands lead to the control plane or cluster that the user chose.
func TestHintsAskTheSame(t *testing.T) {
	const (
		analyze = "run 'moonsail analyze' to find why an object is not used"
		local   = "run 'moonsail analyze /etc/mesh' to find why an object is not used"
		proxies = "see 'moonsail proxies' for connected proxies"
	)
	for _, c := range []struct{ command, hint, want string }{
		{"explain vs/x", local, local},
		{"explain vs/x --address 10.0.0.1:15014", local, local},
		{"explain vs/x", analyze, analyze},
		{"explain vs/x --context prod --revision canary", analyze, "run 'moonsail analyze --context prod' to find why an object is not used"},
		{"explain vs/x --kubeconfig ./prod -i mesh", analyze, "run 'moonsail analyze --kubeconfig ./prod' to find why an object is not used"},
		{"why a.shop http://b", proxies, proxies},
		{"why a.shop http://b --address 10.0.0.1:15014", proxies, "see 'moonsail proxies --address 10.0.0.1:15014' for connected proxies"},
		{"why a.shop http://b -i mesh --revision canary", proxies, "see 'moonsail proxies --istioNamespace mesh --revision canary' for connected proxies"},
		{"pc routes a.shop --address https://h:1 --ca-file ca.pem", proxies, "see 'moonsail proxies --address https://h:1 --ca-file ca.pem' for connected proxies"},
		{"wait vs/x --context prod", "see 'moonsail explain virtualservice/x -n shop' for all problems", "see 'moonsail explain virtualservice/x -n shop --context prod' for all problems"},
		{"x describe service x.shop --context prod", "see 'moonsail experimental internal-debug registryz' for all services", "see 'moonsail experimental internal-debug registryz --context prod' for all services"},
		{"tag remove x --context prod", "see 'moonsail tag list'", "see 'moonsail tag list --context prod'"},
		{"upgrade --rollback --context prod", "use 'moonsail upgrade' with the values of that version", "use 'moonsail upgrade --context prod' with the values of that version"},
		{"diff -f x.yaml --context prod", "correct it: 'moonsail analyze x.yaml' reports all errors", "correct it: 'moonsail analyze x.yaml --context prod' reports all errors"},
		{"proxies --context prod", "install one (see 'moonsail install --help')", "install one (see 'moonsail install --help')"},
	} {
		t.Run(c.command+" "+c.hint, func(t *testing.T) {
			cmd, flags, err := NewRootCommand().Find(strings.Fields(c.command))
			require.NoError(t, err)
			require.NoError(t, cmd.ParseFlags(flags))
			got := terminal.Hint(cmd, c.hint)
			require.Equal(t, c.want, got)
			for _, line := range commandsIn(got) {
				require.Empty(t, wrongIn(line))
			}
		})
	}
}
