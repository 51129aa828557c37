package meshtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/test/short"
)

var update = flag.Bool("update", false, "write the golden files of whole resources")

// Run runs the test files of a directory.
func Run(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s (%v)", dir, err)
	}
	for _, path := range short.Sample(files) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { runFile(t, path) })
	}
}

func runFile(t *testing.T, path string) {
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	f.run(t)
}

func (f *File) run(t *testing.T) {
	same(t, "problems", f.problems, f.wantProblems)
	worlds := map[string]*simulate.World{}
	var found []string
	for _, p := range f.Proxies {
		w, err := f.World(p)
		if err != nil {
			t.Fatalf("proxy %s: %v", p.Name, err)
		}
		worlds[p.Name] = w
		for _, problem := range w.Check() {
			found = append(found, "proxy "+p.Name+": "+problem)
		}
	}
	same(t, "check", found, f.wantCheck)
	for _, c := range f.Calls {
		t.Run(c.Name, func(t *testing.T) { f.runCase(t, c, worlds) })
	}
	f.compareGoldens(t, worlds)
	f.compareForm(t, scoped, worlds)
	f.compareForm(t, onDemand, worlds)
}

// compareForm checks that calls have the same results if configuration reaches the proxies in another form.
func (f *File) compareForm(t *testing.T, as form, whole map[string]*simulate.World) {
	split := map[string]*simulate.World{}
	for _, p := range f.Proxies {
		w, err := f.world(p, as)
		if err != nil {
			t.Fatalf("%s: proxy %s: %v", as, p.Name, err)
		}
		split[p.Name] = w
		if found, want := w.Check(), whole[p.Name].Check(); (len(found) == 0) != (len(want) == 0) {
			t.Errorf("%s: check of proxy %s: %q, not %q", as, p.Name, found, want)
		}
	}
	for _, c := range f.Calls {
		p, err := f.proxy(c.Proxy)
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := whole[p.Name].Call(c.Call.Call)
		got, err := split[p.Name].Call(c.Call.Call)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%s: %s: %v, not %v", as, c.Name, err, wantErr)
		}
		if text := inWhole(got); err == nil && text != want.String() {
			t.Errorf("%s: %s\n%s\n--- not split\n%s", as, c.Name, text, want)
		}
	}
}

// inWhole returns a result with the names of whole route configurations.
func inWhole(r *simulate.Result) string {
	if rc := routeshard.RouteConfig(r.RouteConfig); rc != r.RouteConfig {
		r.VirtualHost = rc + strings.TrimPrefix(r.VirtualHost, r.RouteConfig)
		r.RouteConfig = rc
	}
	return r.String()
}

func (f *File) runCase(t *testing.T, c Case, worlds map[string]*simulate.World) {
	p, err := f.proxy(c.Proxy)
	if err != nil {
		t.Fatal(err)
	}
	res, err := worlds[p.Name].Call(c.Call.Call)
	if err != nil {
		t.Fatalf("%v\n--- so far\n%s", err, res)
	}
	if c.Want == nil {
		t.Fatalf("has no want; the result is\n%s", res)
	}
	if diff := res.Mismatches(c.Want); len(diff) > 0 {
		t.Errorf("%s\n%s\n--- result\n%s", c.Call.String(), strings.Join(diff, "\n"), res)
	}
}

// same checks that there are as many findings as expected, each with its text.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (f *File) compareGoldens(t *testing.T, worlds map[string]*simulate.World) {
	changed := false
	for _, g := range f.goldens {
		p, err := f.proxy(g.proxy)
		if err != nil {
			t.Fatal(err)
		}
		got, err := resourceText(resourceLists[g.kind](worlds[p.Name]))
		if err != nil {
			t.Fatal(err)
		}
		part := &f.archive.Files[g.part]
		if got == string(part.Data) {
			continue
		}
		if !*update {
			t.Errorf("%s differs (go test -update writes it); got\n%s", part.Name, got)
			continue
		}
		part.Data, changed = []byte(got), true
	}
	if changed {
		if err := os.WriteFile(f.Path, txtar.Format(f.archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
