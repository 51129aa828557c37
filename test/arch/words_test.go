package arch

import (
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// goFiles returns the repository's Go files by name, except this package's, which name what they ban.
func goFiles(t *testing.T) map[string]*goFile {
	t.Helper()
	files, err := parsedFiles()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// parsedFiles parses them once for all tests.
var parsedFiles = sync.OnceValues(func() (map[string]*goFile, error) {
	files := map[string]*goFile{}
	for _, dir := range []string{"cmd", "internal", "test", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil || under(name, "test/arch") {
				return err
			}
			files[name], err = parseGo(path)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
})

// TestRetiredNamesStayAway rejects identifiers, packages and words of documents with an old name.
func TestRetiredNamesStayAway(t *testing.T) {
	uses := map[string][]string{} // the files of each use, by identifier
	for name, f := range goFiles(t) {
		for _, id := range f.identifiers {
			uses[id] = append(uses[id], name)
		}
	}
	for _, r := range RetiredNames {
		count, where := 0, ""
		for _, id := range r.identifiers() {
			for _, name := range uses[id] {
				if r.In == "" || under(name, r.In) {
					count, where = count+1, name
				}
			}
		}
		if count > 0 {
			t.Errorf("identifier %s: %d uses, for example in %s: use %s", r.Old, count, where, r.New)
		}
	}
	for _, p := range packages(t) {
		if successor, retired := RetiredPackages[filepath.Base(p.folder())]; retired {
			t.Errorf("%s: a package of this name is retired: its successor is %s", p.folder(), successor)
		}
	}
	for _, doc := range documents(t) {
		if words := retiredInDocs.FindAllString(read(t, doc), -1); words != nil {
			t.Errorf("%s: retired words %q: see docs/glossary.md", doc, words)
		}
	}
}

// identifiers returns the retired name, exported and not.
func (r RetiredName) identifiers() []string {
	return []string{strings.ToLower(r.Old[:1]) + r.Old[1:], strings.ToUpper(r.Old[:1]) + r.Old[1:]}
}

// TestNoBannedPhrases finds banned phrases in Go strings (messages, help, flags) and documents.
func TestNoBannedPhrases(t *testing.T) {
	check := func(file, text string) {
		for _, phrase := range phrasesIn(text) {
			t.Errorf("%s: %q is hard to read: write it in plain English (bannedPhrases in test/arch/words.go)", file, phrase)
		}
	}
	for name, f := range goFiles(t) {
		for _, text := range f.text {
			check(name, text)
		}
	}
	for _, doc := range documents(t) {
		if text := read(t, doc); !generated(text) { // generated pages quote Go strings
			check(doc, text)
		}
	}
}

func TestPhrasesAreFound(t *testing.T) {
	for text, want := range map[string][]string{
		"reports whether x is y":            nil,
		"tells whether x is y":              {"tells whether"},
		"the proxy is no longer connected":  nil,
		"there is no service reviews":       nil,
		"5x is no\nlength of time":          {"is no length"},
		"Whoever may, has one of its own":   {"whoever", "of its own"},
		"leaving came to nothing after 5 s": {"came to nothing"},
	} {
		t.Run(text, func(t *testing.T) { require.Equal(t, want, phrasesIn(text)) })
	}
}
