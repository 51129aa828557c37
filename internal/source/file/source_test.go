package file

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func TestInitialLoadIsOneBatchThenSynced(t *testing.T) {
	f := start(t, map[string]string{
		"a.yaml":              docs(ns("a", "v1"), ns("b", "v1")),
		"sub/deep/c.yml":      ns("c", "v1"),
		"d.json":              "{\n\t\"apiVersion\": \"v1\", \"kind\": \"Namespace\",\n\t\"metadata\": {\"name\": \"d\", \"labels\": {\"v\": \"v1\"}}}",
		"list.yaml":           "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: e, labels: {v: v1}}}\n- {apiVersion: v1, kind: Namespace, metadata: {name: f, labels: {v: v1}}}\n",
		"README.md":           "not: read\n",
		".hidden/x.yaml":      ns("hidden", "v1"),
		"kustomization.yaml":  "resources: [a.yaml]\n",
		"empty.yaml":          "# nothing\n---\n",
		"other/workload.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
	})
	f.becomes("a=v1 b=v1 c=v1 d=v1 e=v1 f=v1")
	require.Equal(t, 1, f.count())
	require.Equal(t, 2, f.synced)
	require.Empty(t, f.src.Problems())
	o := f.state[model.Key{Kind: model.KindNamespace, Name: "b"}]
	require.Equal(t, f.path("a.yaml")+":7", o.Metadata().Origin)
	require.NotEmpty(t, o.Metadata().ResourceVersion)
}

// TestPlaceOfAField checks that the line of a field is found, unless the file has another version of the object.
func TestPlaceOfAField(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"))})
	f.becomes("a=v1 b=v1")
	b := f.state[model.Key{Kind: model.KindNamespace, Name: "b"}].Metadata()
	require.Equal(t, f.path("a.yaml")+":7", f.src.Place(b, ""))
	require.Equal(t, f.path("a.yaml")+":11", f.src.Place(b, "metadata.labels.v"))
	require.Empty(t, f.src.Place(&model.Meta{Key: b.Key, Origin: "kubernetes", ResourceVersion: "1"}, ""))
	f.replace("a.yaml", docs(ns("a", "v1"), ns("b", "v2")))
	require.Empty(t, f.src.Place(b, "metadata.labels.v"))
}

// TestNothingOlderThanTheLoadIsServed checks that files which change while the first ones are read are read before Synced.
func TestNothingOlderThanTheLoadIsServed(t *testing.T) {
	f := prepare(t, map[string]string{"a.yaml": ns("a", "v1"), "b.yaml": ns("b", "v1"), "c.yaml": ns("c", "v1")})
	f.loaded = func() {
		f.replace("a.yaml", ns("a", "v2"))
		f.write("d.yaml", ns("d", "v1"))
		_ = os.Remove(f.path("b.yaml")) // checked below
	}
	f.run(f.dir)
	require.Equal(t, "a=v2 c=v1 d=v1", f.String())
	require.Equal(t, 3, f.syncs(), "two batches before Synced")
}

func TestOnlyWhatChangedIsTold(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"))})
	f.write("a.yaml", docs("# moved\n"+ns("b", "v1"), ns("a", "v2")))
	f.becomes("a=v2 b=v1")
	require.Equal(t, "a=v2 |", f.since(1))
}

func TestRenameOver(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"))})
	f.replace("a.yaml", docs(ns("a", "v2"), ns("c", "v1")))
	f.becomes("a=v2 c=v1")
	require.Equal(t, "a=v2 -b c=v1 |", f.since(1), "all changes of a file are one batch")
}

func TestBackupThenWriteDeletesNothing(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": ns("a", "v1")})
	require.NoError(t, os.Rename(f.path("a.yaml"), f.path("a.yaml~")))
	f.write("a.yaml", ns("a", "v2"))
	f.becomes("a=v2")
	require.Equal(t, "a=v2 |", f.since(1))
}

func TestPartialWriteKeepsLastGood(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"))})
	whole := docs(ns("a", "v2"), ns("b", "v2"))
	f.write("a.yaml", strings.TrimSuffix(whole, "}\n")) // not YAML
	f.complains("a.yaml:11: error: is not valid YAML")
	require.Contains(t, f.src.Problems()[0].Message, "; its previous objects stay in force")
	f.becomes("a=v2 b=v1") // complete documents are used; the previous objects of others stay
	f.write("a.yaml", whole)
	f.becomes("a=v2 b=v2")
	f.complains()
	require.NotContains(t, f.since(1), "-")
}

// TestSolvedProblemIsLogged: the log ends with what is wrong at present.
func TestSolvedProblemIsLogged(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": ns("a", "v1")})
	f.write("a.yaml", ns("a", "v1")+"  lables: {}\n")
	f.complains("a.yaml:6: error: Namespace/a: metadata.lables")
	f.write("a.yaml", "# comment\n"+ns("a", "v1")+"  lables: {}\n")
	f.complains("a.yaml:7: error: Namespace/a: metadata.lables")
	require.NotContains(t, f.log.String(), "solved", "it has only moved")
	f.write("a.yaml", "kind: Namespce\n")
	f.complains("a.yaml:1: error: has no apiVersion")
	f.until(func() bool { return strings.Contains(f.log.String(), "has no apiVersion") }, "logged")
	require.Regexp(t, `level=INFO msg="configuration problem solved" where=\S*a.yaml:7 object=Namespace/a field=metadata.lables .*\n`+
		`.*level=ERROR msg="configuration problem" where=\S*a.yaml:1 .*has no apiVersion.*\n$`, f.log.String())
	require.NoError(t, os.Remove(f.path("a.yaml")))
	f.until(func() bool {
		return strings.Contains(f.log.String(), `solved" where=`+f.path("a.yaml")+`:1 problem="has no apiVersion`)
	}, "logged")
}

func TestTruncationDeletesNothing(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"))})
	file, err := os.OpenFile(f.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	_, err = file.WriteString(ns("a", "v2") + "---\n")
	require.NoError(t, err)
	_, err = file.WriteString(ns("b", "v2"))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	f.becomes("a=v2 b=v2")
	require.NotContains(t, f.since(1), "-")
}

func TestObjectRemovedInPlace(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"))})
	f.write("a.yaml", ns("b", "v1"))
	f.becomes("b=v1")
	require.Equal(t, "-a |", f.since(1))
	f.write("a.yaml", "")
	f.becomes("")
}

// TestRelabelled checks that an object with another revision's label leaves this revision.
func TestRelabelled(t *testing.T) {
	const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, labels: {v: v1%s}}\nspec: {host: web}\n"
	f := start(t, map[string]string{"a.yaml": docs(ns("b", "v1"), fmt.Sprintf(rule, ""))})
	f.write("a.yaml", docs(ns("b", "v1"), fmt.Sprintf(rule, ", istio.io/rev: canary")))
	f.becomes("b=v1")
	f.write("a.yaml", docs(ns("b", "v1"), fmt.Sprintf(rule, ", istio.io/rev: default")))
	f.becomes("b=v1 web=v1")
}

func TestFileRemovedAndMoved(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": ns("a", "v1"), "b.yaml": ns("b", "v1"), "c.yaml": ns("c", "v1")})
	require.NoError(t, os.Remove(f.path("a.yaml")))
	f.becomes("b=v1 c=v1")
	before := f.count()
	require.NoError(t, os.Rename(f.path("b.yaml"), f.path("z.yaml")))
	f.write("c.yaml", ns("c", "v2"))
	f.becomes("b=v1 c=v2")
	require.NoError(t, os.Rename(f.path("z.yaml"), f.path("z.txt")))
	f.becomes("c=v2")
	require.Equal(t, 1, strings.Count(f.since(before), "-b"), "moving a file within the tree deletes nothing")
}

func TestDirectories(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": ns("a", "v1")})
	f.write("new/deep/b.yaml", ns("b", "v1"))
	f.becomes("a=v1 b=v1")
	f.write("new/deep/b.yaml", ns("b", "v2"))
	f.becomes("a=v1 b=v2")
	require.NoError(t, os.Rename(f.path("new"), f.path("old")))
	f.write("old/deep/c.yaml", ns("c", "v1"))
	f.becomes("a=v1 b=v2 c=v1")
	f.write("old/deep/c.yaml", ns("c", "v2"))
	f.becomes("a=v1 b=v2 c=v2")
	require.NoError(t, os.RemoveAll(f.path("old")))
	f.becomes("a=v1")
}

// TestDirectoriesAreEnteredBeforeTheyAreRead checks that a directory is watched before its entries are read: what is made in
// it meanwhile is either listed or causes an event.
func TestDirectoriesAreEnteredBeforeTheyAreRead(t *testing.T) {
	root := t.TempDir()
	var entered []string
	l := list(root, func(dir string) {
		entered = append(entered, dir)
		if len(entered) < 4 {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o755))
		}
	})
	a := filepath.Join(root, "a")
	require.Equal(t, []string{root, a, filepath.Join(a, "a"), filepath.Join(a, "a", "a")}, entered)
	require.Equal(t, entered, l.dirs)
}

func TestDuplicateFirstPathWins(t *testing.T) {
	f := start(t, map[string]string{"b.yaml": ns("x", "b")})
	f.write("c.yaml", ns("x", "c"))
	f.complains("c.yaml:1: error: Namespace/x: is already defined at ")
	f.becomes("x=b")
	f.write("a.yaml", ns("x", "a"))
	f.becomes("x=a")
	f.complains("b.yaml:1: error: Namespace/x", "c.yaml:1: error: Namespace/x")
	require.NoError(t, os.Remove(f.path("a.yaml")))
	f.becomes("x=b")
	require.NoError(t, os.Remove(f.path("b.yaml")))
	f.becomes("x=c")
	f.complains()
	require.NotContains(t, f.since(0), "-")
}

func TestDuplicateInOneFile(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("x", "v1"), ns("x", "v2"))})
	f.becomes("x=v1")
	f.complains("a.yaml:7: error: Namespace/x: is already defined at ")
}

func TestBrokenDocumentKeepsLastGood(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": docs(ns("a", "v1"), ns("b", "v1"), ns("c", "v1"))})
	broken := strings.Replace(ns("a", "v2"), "labels", "lables", 1)
	f.write("a.yaml", docs(broken, ns("b", "v2"), ns("c", "v1")))
	f.becomes("a=v1 b=v2 c=v1")
	f.complains(`a.yaml:5: error: Namespace/a: metadata.lables: unknown field; did you mean "labels"?`)
	require.Equal(t, "b=v2 |", f.since(1))

	misspelt := strings.Replace(ns("a", "v2"), "Namespace", "Namespce", 1)
	f.write("a.yaml", docs(misspelt, ns("b", "v3")))
	f.becomes("a=v1 b=v3 c=v1") // the document may be a or c, so neither is removed
	f.complains(`a.yaml:2: error: kind: v1 has no kind "Namespce"; did you mean "Namespace"?`)

	f.write("a.yaml", docs(ns("a", "v2"), ns("b", "v3")))
	f.becomes("a=v2 b=v3")
	f.complains()
}

func TestBrokenFromTheStart(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": "a: [\n", "b.yaml": ns("b", "v1"), "c.yaml": "kind: Service\n"})
	f.becomes("b=v1")
	f.complains("a.yaml:", "c.yaml:1: error: has no apiVersion")
}

// TestConfigMapSwap follows a mounted ConfigMap: files are links into ..data, which is
// a link to a directory that kubelet swaps.
func TestConfigMapSwap(t *testing.T) {
	f := &fixture{recorder: &recorder{state: map[model.Key]model.Object{}}, t: t, dir: t.TempDir()}
	f.write("..1/a.yaml", ns("a", "v1"))
	f.write("..1/b.yaml", docs(ns("b", "v1"), ns("gone", "v1")))
	require.NoError(t, os.Symlink("..1", f.path("..data")))
	require.NoError(t, os.Symlink("..data/a.yaml", f.path("a.yaml")))
	require.NoError(t, os.Symlink("..data/b.yaml", f.path("b.yaml")))
	f.run(f.dir)
	f.becomes("a=v1 b=v1 gone=v1")

	swap := func(to string) {
		require.NoError(t, os.Symlink(to, f.path("..data_tmp")))
		require.NoError(t, os.Rename(f.path("..data_tmp"), f.path("..data")))
	}
	f.write("..2/a.yaml", ns("a", "v2"))
	f.write("..2/b.yaml", ns("b", "v2"))
	swap("..2")
	require.NoError(t, os.RemoveAll(f.path("..1")))
	f.becomes("a=v2 b=v2")
	require.Equal(t, "a=v2 b=v2 -gone |", f.since(1), "a swap is one batch")

	f.write("..3/a.yaml", ns("a", "v3"))
	f.write("..3/b.yaml", ns("b", "v2"))
	swap("..3")
	f.becomes("a=v3 b=v2")
}

func TestLinkedDirectoryIsSwapped(t *testing.T) {
	f := &fixture{recorder: &recorder{state: map[model.Key]model.Object{}}, t: t, dir: t.TempDir()}
	f.write("one/a.yaml", ns("a", "v1"))
	f.write("two/a.yaml", ns("a", "v2"))
	require.NoError(t, os.Symlink("one", f.path("current")))
	f.run(f.path("current"))
	f.becomes("a=v1")
	require.NoError(t, os.Symlink("two", f.path("next")))
	require.NoError(t, os.Rename(f.path("next"), f.path("current")))
	f.becomes("a=v2")
	f.write("two/a.yaml", ns("a", "v3"))
	f.becomes("a=v3")
}

func TestMissingDirectory(t *testing.T) {
	s := &Source{Dir: filepath.Join(t.TempDir(), "none"), Intake: &recorder{}}
	require.ErrorContains(t, s.Run(t.Context()), "no such file")
}

func TestDirectoryGoneKeepsEverything(t *testing.T) {
	f := start(t, map[string]string{"x/a.yaml": ns("a", "v1")})
	require.NoError(t, os.Rename(f.dir, f.dir+".away"))
	f.complains("the directory is missing; put it back")
	f.becomes("a=v1")
	require.NoError(t, os.Rename(f.dir+".away", f.dir))
	f.complains()
	f.write("x/a.yaml", ns("a", "v2"))
	f.becomes("a=v2")
	require.NotContains(t, f.since(0), "-")
}

func TestPipesAreNotRead(t *testing.T) {
	f := start(t, map[string]string{"a.yaml": ns("a", "v1")})
	require.NoError(t, syscall.Mkfifo(f.path("pipe.yaml"), 0o600))
	f.complains("is not a regular file")
	f.becomes("a=v1")
}

// TestCatalogOrder checks that the objects in force depend only on the files, not on the order of their arrival.
func TestCatalogOrder(t *testing.T) {
	contents := map[string][]string{
		"a": {docs(ns("x", "v1"), ns("y", "v1")), ns("y", "v2"), "a: [", "kind: Broken\n"},
		"b": {ns("x", "v3"), docs(ns("x", "v4"), ns("z", "v4"))},
		"c": {ns("z", "v5"), ""},
	}
	inForce := func(c *catalog) map[model.Key]string {
		out := map[model.Key]string{}
		for _, o := range c.objects() {
			out[o.Metadata().Key] = label(o)
		}
		return out
	}
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c", "a", "b"}} {
		c, state := newCatalog(), map[model.Key]string{}
		for round := range 4 {
			for _, path := range order {
				versions := contents[path]
				p := parse(path, []byte(versions[round%len(versions)]), config.Decoder{})
				events := c.set(path, p, time.Time{})
				if round == 3 && path == "b" {
					events = append(events, c.remove(path, time.Time{})...)
				}
				for _, e := range events {
					if e.Object == nil {
						delete(state, e.Key)
					} else {
						state[e.Key] = label(e.Object)
					}
				}
				require.Equal(t, inForce(c), state)
			}
		}
		require.Equal(t, "v2", state[model.Key{Kind: model.KindNamespace, Name: "y"}])
	}
}

func TestAnalyze(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	require.NoError(t, os.WriteFile(path, []byte(docs(ns("a", "v1"), "bad: 1\n", ns("b", "v1"))), 0o600))
	for _, target := range []string{dir, path} {
		tree, err := Analyze(target, config.Decoder{})
		require.NoError(t, err)
		require.Len(t, tree.Objects, 2)
		require.Len(t, tree.Problems, 1)
		require.Equal(t, path+":7", tree.Problems[0].Where())
		found := problem.List{{Object: model.Key{Kind: model.KindNamespace, Name: "b"}, Field: "metadata.labels.v"}}
		tree.Locate(found)
		require.Equal(t, path+":13", found[0].Where())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("{"), 0o600))
	tree, err := Analyze(filepath.Join(dir, "broken.yaml"), config.Decoder{})
	require.NoError(t, err)
	require.Len(t, tree.Problems, 1)
	require.Contains(t, tree.Problems[0].Message, "is not valid YAML")
	require.NotContains(t, tree.Problems[0].Message, "before", "nothing was read before")
	_, err = Analyze(filepath.Join(dir, "none"), config.Decoder{})
	require.Error(t, err)
}

// still is a source without a goroutine: the test calls it.
func still(t *testing.T, f *fixture) *Source {
	t.Helper()
	s := &Source{Dir: f.dir, Intake: f.recorder, Log: slog.New(slog.DiscardHandler)}
	w, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	s.begin(w)
	s.scan(s.Dir, time.Now())
	return s
}

// TestUnreadableFileIsNotInDoubt checks that an unfinished file that cannot be read any more is read again after an event,
// and not all the time.
func TestUnreadableFileIsNotInDoubt(t *testing.T) {
	f := prepare(t, map[string]string{"a.yaml": ns("a", "v1")})
	s := still(t, f)
	now := time.Now()
	f.write("a.yaml", "kind: [")
	s.handle([]fsnotify.Event{{Name: f.path("a.yaml"), Op: fsnotify.Write}}, now)
	require.Less(t, s.untilDue(), time.Minute, "the file may be half written")
	require.NoError(t, os.Remove(f.path("a.yaml")))
	require.NoError(t, os.Symlink("/dev/null", f.path("a.yaml")))
	s.look(now.Add(time.Second))
	require.Greater(t, s.untilDue(), time.Minute)
	require.Equal(t, "a=v1", f.String())
}

// TestEverythingIsReadAfterLostEvents checks that after lost events a file that looks unchanged is read too.
func TestEverythingIsReadAfterLostEvents(t *testing.T) {
	f := prepare(t, map[string]string{"a.yaml": ns("a", "v1")})
	s := still(t, f)
	info, err := os.Stat(f.path("a.yaml"))
	require.NoError(t, err)
	f.write("a.yaml", ns("a", "v2"))
	require.NoError(t, os.Chtimes(f.path("a.yaml"), info.ModTime(), info.ModTime()))
	s.scan(s.Dir, time.Now())
	require.Equal(t, "a=v1", f.String(), "the file looks unchanged")
	s.readAgain(time.Now())
	require.Equal(t, "a=v2", f.String())
}
