package arch

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goFiles parses the repository's Go files, except this package's, which name what they ban.
func goFiles(t *testing.T) map[string]*goFile {
	t.Helper()
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
		require.NoError(t, err)
	}
	require.NotEmpty(t, files)
	return files
}

// TestRetiredNamesStayAway rejects identifiers, packages and words of documents with an old name.
func TestRetiredNamesStayAway(t *testing.T) {
	files := goFiles(t)
	for _, r := range RetiredNames {
		count, where := 0, ""
		for name, f := range files {
			for _, id := range f.identifiers {
				if r.names(id) && (r.In == "" || under(name, r.In)) {
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

// names reports whether an identifier is the retired one, exported or not.
func (r RetiredName) names(id string) bool {
	return len(id) == len(r.Old) && id[1:] == r.Old[1:] && strings.EqualFold(id[:1], r.Old[:1])
}

// phrasesFile has the banned phrases that were there when it was last written, by room. The
// goal is an empty file.
const phrasesFile = "testdata/phrases.txt"

// TestPhrasesBecomeFewer counts banned phrases in Go strings (messages, help, flags) and documents.
// The sum may only go down; -update writes the counts down when it did.
func TestPhrasesBecomeFewer(t *testing.T) {
	counts, example := map[string]int{}, map[string]string{}
	count := func(room, file, text string) {
		for _, phrase := range phrasesIn(text) {
			counts[room]++
			example[room] = fmt.Sprintf("%q in %s", phrase, file)
		}
	}
	for name, f := range goFiles(t) {
		for _, text := range f.text {
			count(roomName(name), name, text)
		}
	}
	for _, doc := range documents(t) {
		if text := read(t, doc); !generated(text) { // generated pages quote Go strings
			count(doc, doc, text)
		}
	}
	before, sumBefore := readCounts(t)
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if sum > sumBefore {
		for room, n := range counts {
			if n > before[room] {
				t.Errorf("%s: %d banned phrases, %d before, for example %s", room, n, before[room], example[room])
			}
		}
		t.Errorf("%d banned phrases, %d before: write them in plain English (bannedPhrases in test/arch/words.go)", sum, sumBefore)
		return
	}
	if *update {
		writeCounts(t, counts)
	}
}

func roomName(file string) string {
	if r, ok := roomOf(file); ok {
		return r.Folder()
	}
	return strings.Join(strings.SplitN(file, "/", 3)[:min(2, strings.Count(file, "/"))], "/")
}

func readCounts(t *testing.T) (counts map[string]int, sum int) {
	t.Helper()
	b, err := os.ReadFile(phrasesFile)
	require.NoError(t, err)
	counts = map[string]int{}
	for line := range strings.Lines(string(b)) {
		var room string
		var n int
		_, err := fmt.Sscanf(line, "%s %d", &room, &n)
		require.NoError(t, err, "%s: %q", phrasesFile, line)
		counts[room] = n
		sum += n
	}
	return counts, sum
}

func writeCounts(t *testing.T, counts map[string]int) {
	t.Helper()
	var b strings.Builder
	for _, room := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%s %d\n", room, counts[room])
	}
	require.NoError(t, os.WriteFile(phrasesFile, []byte(b.String()), 0o644))
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
