package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli"
	labcli "github.com/moonsail/moonsail/internal/lab/cli"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// documents lists the texts for people whose commands, links and words are checked.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", ".github/*.md", ".github/ISSUE_TEMPLATE/*.yml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, f := range found {
			name, err := filepath.Rel(root, f)
			require.NoError(t, err)
			files = append(files, name)
		}
	}
	for _, must := range []string{"README.md", "ARCHITECTURE.md", "RATIONALE.md", "CONTRIBUTING.md", "docs/glossary.md", "docs/performance.md", "examples/README.md", ".github/pull_request_template.md"} {
		require.Contains(t, files, must)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	return string(b)
}

// TestFirstPagesAreShort holds the pages that all readers begin with to their sizes.
func TestFirstPagesAreShort(t *testing.T) {
	require.LessOrEqual(t, strings.Count(read(t, "README.md"), "\n"), 200, "lines of README.md: shorten it, or move a part to docs")
	require.LessOrEqual(t, len(strings.Fields(read(t, "ARCHITECTURE.md"))), 2500, "words of ARCHITECTURE.md: shorten it, or move a part to docs/design")
}

func TestDependenciesAreExplained(t *testing.T) {
	text := read(t, "RATIONALE.md")
	read(t, "go.mod") // so that the test's result is not kept when it changes
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	var direct []string
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		direct = append(direct, r.Path)
		if !strings.Contains(text, "`"+r.Path+"`") {
			t.Errorf("RATIONALE.md does not say why we depend on %s", r.Path)
		}
	}
	require.NotEmpty(t, direct)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(text, -1) {
		for _, m := range strings.Split(row[1], ", ") {
			if !slices.Contains(direct, strings.Trim(m, "`")) {
				t.Errorf("RATIONALE.md explains %s, which go.mod does not require", m)
			}
		}
	}
}

// commands are what readers can type.
type commands struct {
	moonsail, lab *cobra.Command
	targets       []string // of make
}

// TestCommandsExist requires that the subcommands, flags and targets of make exist which documents and examples use.
func TestCommandsExist(t *testing.T) {
	known := commands{cli.NewRootCommand(), labcli.NewRootCommand(), makeTargets(t)}
	for _, doc := range documents(t) {
		for _, code := range codeIn(read(t, doc)) {
			known.check(t, doc, code)
		}
	}
	var examples func(cmd *cobra.Command)
	examples = func(cmd *cobra.Command) {
		known.check(t, "examples of "+cmd.CommandPath(), cmd.Example)
		for _, sub := range cmd.Commands() {
			examples(sub)
		}
	}
	examples(known.moonsail)
	examples(known.lab)
}

// check checks the lines of code that run moonsail or make.
func (known commands) check(t *testing.T, where, code string) {
	t.Helper()
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, "|")
		words := strings.Fields(line)
		for len(words) > 0 && strings.Contains(words[0], "=") { // an environment variable
			words = words[1:]
		}
		switch {
		case len(words) < 2:
		case words[0] == "moonsail", words[0] == "bin/moonsail":
			checkCommand(t, where, known.moonsail, words)
		case words[0] == "moonsail-lab", words[0] == "bin/moonsail-lab":
			checkCommand(t, where, known.lab, words)
		case words[0] == "make" && !slices.Contains(known.targets, words[1]):
			t.Errorf("%s: there is no target for %q", where, line)
		}
	}
}

// checkCommand follows words through the command tree.
func checkCommand(t *testing.T, doc string, cmd *cobra.Command, words []string) {
	for _, w := range words[1:] {
		switch name, isFlag := strings.CutPrefix(w, "-"); {
		case isFlag && name == "": // standard input or output
		case isFlag:
			if !hasFlag(cmd, strings.TrimPrefix(name, "-")) {
				t.Errorf("%s: %q: %s has no flag %s", doc, strings.Join(words, " "), cmd.CommandPath(), w)
			}
		case cmd.HasSubCommands():
			sub := subcommand(cmd, w)
			if sub == nil {
				if cmd.HasParent() && cmd.Runnable() {
					continue // an argument, or a flag's value
				}
				t.Errorf("%s: %q: there is no such command", doc, strings.Join(words, " "))
				return
			}
			cmd = sub
		}
	}
}

func hasFlag(cmd *cobra.Command, name string) bool {
	name, _, _ = strings.Cut(name, "=")
	if len(name) == 1 {
		return cmd.Flags().ShorthandLookup(name) != nil
	}
	return cmd.Flags().Lookup(name) != nil || name == "help"
}

func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}
	return nil
}

// codeIn gives the fenced blocks and the code spans of a Markdown text.
func codeIn(text string) []string {
	var code []string
	fence := regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		code = append(code, m[1])
	}
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		code = append(code, m[1])
	}
	return code
}

var makeTarget = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)

func makeTargets(t *testing.T) []string {
	t.Helper()
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	for _, must := range []string{"demo", "test", "lint", "bench", "e2e", "build", "clean"} {
		require.Contains(t, targets, must)
	}
	return targets
}

var link = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)

// TestLinksLead requires that links of documents lead to files and headings that exist.
func TestLinksLead(t *testing.T) {
	headings := map[string][]string{} // anchors by document; cli.md links a hundred times to itself
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(read(t, doc)), -1) {
			file, anchor := m[1], m[2]
			if strings.Contains(file, ":") {
				continue
			}
			target := doc
			if file != "" {
				target = filepath.Join(filepath.Dir(doc), file)
				require.FileExists(t, filepath.Join(root, target), "%s links to it", doc)
			}
			if anchor == "" || filepath.Ext(target) != ".md" {
				continue
			}
			if headings[target] == nil {
				headings[target] = anchors(read(t, target))
			}
			if !slices.Contains(headings[target], anchor) {
				t.Errorf("%s links to %s#%s: %s has no such heading", doc, file, anchor, target)
			}
		}
	}
}

// TestRowsOfTablesAreLines finds lines that begin a row of a table and do not end it: Markdown ends the table there.
func TestRowsOfTablesAreLines(t *testing.T) {
	for _, doc := range documents(t) {
		for row := range strings.Lines(withoutCode(read(t, doc))) {
			if row = strings.TrimSpace(row); strings.HasPrefix(row, "|") && !strings.HasSuffix(row, "|") {
				t.Errorf("%s: a line break in a row of a table: %s", doc, row)
			}
		}
	}
}

var (
	headingLine   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linkInHeading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notInAnAnchor = regexp.MustCompile(`[^\pL\pN_ -]`)
)

var fencedCode = regexp.MustCompile("(?s)```.*?```")

func withoutCode(text string) string { return fencedCode.ReplaceAllString(text, "") }

// anchors lists the anchors that GitHub makes of the headings of a Markdown text. No document has a heading twice
// that is linked to.
func anchors(text string) []string {
	var out []string
	for _, m := range headingLine.FindAllStringSubmatch(withoutCode(text), -1) {
		heading := linkInHeading.ReplaceAllString(m[1], "$1")
		heading = notInAnAnchor.ReplaceAllString(strings.ToLower(heading), "")
		out = append(out, strings.ReplaceAll(heading, " ", "-"))
	}
	return out
}

// TestEnvoyIsPinnedOnce finds Envoy's version in no file but the one that pins it.
func TestEnvoyIsPinnedOnce(t *testing.T) {
	for _, file := range slices.Concat(documents(t), []string{"Makefile", ".ci/run", "tools/fuzz"}) {
		require.NotContains(t, read(t, file), envoy.Version, "%s names Envoy's version; only internal/sidecar/envoy/ENVOY_VERSION should", file)
	}
}

// TestPathsExist holds documents to folders and files of the repository that exist.
func TestPathsExist(t *testing.T) {
	path := regexp.MustCompile("`((?:cmd|internal|test|deploy|examples)/[a-zA-Z0-9_./-]+)`")
	for _, doc := range documents(t) {
		for _, m := range path.FindAllStringSubmatch(read(t, doc), -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: `%s`: no such file or folder: has it moved?", doc, m[1])
			}
		}
	}
}
