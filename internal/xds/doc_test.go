package xds_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// way is a line of doc.go with a file, a function in it, and what the function does.
var way = regexp.MustCompile(`(?m)^//\t(\S+\.go) +(\S+) +\S`)

// TestWaysExist: the files and functions that doc.go lists exist, and an ACK passes at most eight files.
func TestWaysExist(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), "# The way of an ACK")
	require.True(t, found)
	ack, others, found := strings.Cut(text, "# The way of a NACK")
	require.True(t, found)
	files := map[string]bool{}
	for _, line := range way.FindAllStringSubmatch(ack, -1) {
		files[line[1]] = true
		requireFunction(t, line[1], line[2])
	}
	require.NotEmpty(t, files)
	require.LessOrEqual(t, len(files), 8, "files that an ACK passes")
	rest := way.FindAllStringSubmatch(others, -1)
	require.NotEmpty(t, rest)
	for _, line := range rest {
		requireFunction(t, line[1], line[2])
	}
}

// requireFunction requires that a file of internal has a function, "name" or "receiver.name".
func requireFunction(t *testing.T, file, function string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
	require.NoError(t, err, "doc.go lists it")
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && nameOf(f) == function {
			return
		}
	}
	t.Errorf("%s: no function %s, which doc.go lists", file, function)
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if id, ok := receiver.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
