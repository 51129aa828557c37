package configure

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// moonsail runs a command line of moonsail with the commands of this package.
func moonsail(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return withInput(t, "", args...)
}

// withInput runs a command line with standard input.
func withInput(t *testing.T, stdin string, args ...string) (status int, out, errOut string) {
	t.Helper()
	root := clitest.Root(Commands()...)
	root.SetIn(strings.NewReader(stdin))
	return clitest.Run(t, root, args...)
}

const goodYAML = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec:
  ports: [{name: web, port: 80}]
`

const badYAML = goodYAML + `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - route:
    - destination: {host: reveiws}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: typo, namespace: shop}
spec:
  hosts: [a.example.com]
  http:
  - timout: 1s
    route: [{destination: {host: reviews}}]
`

func TestAnalyze(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(good, []byte(goodYAML), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte(badYAML), 0o600))
	const (
		unknown = `bad.yaml:14: error: VirtualService/shop/reviews: spec.http[0].route[0].destination.host: ` +
			`service reveiws.shop.svc.cluster.local: not found: did you mean reviews.shop.svc.cluster.local? [MS1201]`
		typo = `bad.yaml:22: error: VirtualService/shop/typo: spec.http[0].timout: unknown field; did you mean "timeout"? [MS1101]`
	)
	for _, tc := range []struct {
		args   []string
		status int
		lines  []string // how lines end or what they contain, in order
	}{
		{[]string{good}, 0, []string{"good.yaml:5: info: Service/shop/reviews: spec.ports[0].name: ", "1 file, 1 object: 0 errors, 0 warnings, 1 info"}},
		{[]string{good, "--level", "warning"}, 0, []string{"1 file, 1 object: no problems"}},
		{[]string{bad}, 1, []string{"bad.yaml:5: info", unknown, typo, "1 file, 2 objects: 2 errors, 0 warnings, 1 info"}},
		{[]string{dir, "--level", "error"}, 1, []string{unknown, typo, "good.yaml:1: error: Service/shop/reviews: is already defined at",
			"2 files, 2 objects: 3 errors, 0 warnings, 0 infos"}},
		{[]string{bad, "--domain", "mesh.local", "--level", "error"}, 1, []string{"reveiws.shop.svc.mesh.local", "timout", "2 errors"}},
	} {
		t.Run(strings.Join(tc.args[1:], " "), func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"analyze"}, tc.args...)...)
			require.Equal(t, tc.status, status)
			require.Empty(t, errOut)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, len(tc.lines), out)
			for i, part := range tc.lines {
				require.Contains(t, lines[i], part)
			}
		})
	}
}

// TestAnalyzeWithoutObjects checks that a place without objects, probably the wrong one, fails a pipeline.
func TestAnalyzeWithoutObjects(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "readme.txt"), []byte("hello"), 0o600))
	status, out, errOut := moonsail(t, "analyze", dir)
	require.Equal(t, terminal.ExitFailed, status)
	require.Equal(t, "0 files, 0 objects: no objects to check\n", out)
	require.Contains(t, errOut, "error: no objects\n  where: "+dir+"\n  next:  name files with objects")
	status, _, errOut = moonsail(t, "analyze", "-")
	require.Equal(t, terminal.ExitFailed, status)
	require.Equal(t, "error: no objects\n  where: standard input\n  next:  write YAML or JSON of objects to it, or allow none with --allow-empty\n", errOut)
	status, _, errOut = moonsail(t, "analyze", dir, "--allow-empty")
	require.Zero(t, status)
	require.Empty(t, errOut)

	for text, want := range map[string]int{"": terminal.ExitFailed, "# later\n---\n": terminal.ExitFailed, "null\n": terminal.ExitFailed,
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n": terminal.ExitOK} { // a kind that the mesh does not read is an object, too
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
		status, _, _ = moonsail(t, "analyze", dir)
		require.Equal(t, want, status, text)
	}
}

// TestAnalyzeSeveral checks that all arguments, and standard input, are one mesh.
func TestAnalyzeSeveral(t *testing.T) {
	dir := t.TempDir()
	service, route := filepath.Join(dir, "service.yaml"), filepath.Join(dir, "route.yaml")
	require.NoError(t, os.WriteFile(service, []byte(goodYAML), 0o600))
	text := `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}]}
`
	require.NoError(t, os.WriteFile(route, []byte(text), 0o600))
	status, out, _ := moonsail(t, "analyze", route)
	require.Zero(t, status, out)
	require.Contains(t, out, "info: VirtualService/shop/reviews: spec.http[0].route[0].destination.host: reviews.shop.svc.cluster.local: not found in these files")
	status, out, _ = moonsail(t, "analyze", route, service, dir)
	require.Zero(t, status, out)
	require.Contains(t, out, "2 files, 2 objects: 0 errors")

	status, out, errOut := withInput(t, text, "analyze", "-", service, "--level", "error")
	require.Zero(t, status, errOut)
	require.Equal(t, "2 files, 2 objects: no problems\n", out)
}

// TestAnalyzeChange checks a directory as it would be after a change.
func TestAnalyzeChange(t *testing.T) {
	dir, change := t.TempDir(), filepath.Join(t.TempDir(), "change.yaml")
	route := func(host string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hosts: [reviews], http: [{route: [{destination: {host: " + host + "}}]}]}\n"
	}
	inDir := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "mesh.yaml"), []byte(goodYAML+"---\n"+text), 0o600))
	}
	inDir(route("reviews"))
	for name, tc := range map[string]struct {
		change string
		want   string // of the output
		status int
	}{
		"a good one":       {route("reviews.shop.svc.cluster.local"), "2 files, 2 objects: no problems\n", 0},
		"a missing host":   {route("reveiws"), "change.yaml:4: error: VirtualService/shop/reviews: spec.http[0].route[0].destination.host: service reveiws.shop", 1},
		"a broken one":     {route("[]"), "change.yaml:4: error: VirtualService/shop/reviews: spec.http[0].route[0].destination.host: must be a string", 1},
		"twice":            {route("reviews") + "---\n" + route("reviews"), "change.yaml:6: error: VirtualService/shop/reviews: is already defined at ", 1},
		"a needed Service": {strings.Replace(goodYAML, "port: 80", "port: 81", 1), "2 files, 2 objects: no problems\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(change, []byte(tc.change), 0o600))
			status, out, errOut := moonsail(t, "analyze", dir, "-f", change, "--level", "warning")
			require.Equal(t, tc.status, status, errOut)
			require.Contains(t, out, tc.want)
			if name != "twice" {
				require.NotContains(t, out, string(code.DefinedTwice))
			}
			status, out, _ = withInput(t, tc.change, "analyze", dir, "-f", "-", "--level", "warning")
			require.Equal(t, tc.status, status, out)
		})
	}
	require.NoError(t, os.WriteFile(change, []byte(route("reviews")), 0o600))
	status, out, _ := moonsail(t, "analyze", dir, change, "--level", "error")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "error: VirtualService/shop/reviews: is already defined at ", "arguments are one mesh")

	inDir(route("reveiws"))
	status, out, _ = moonsail(t, "analyze", dir, "-f", filepath.Join(dir, "mesh.yaml"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "1 file, 2 objects: 1 error", "a file of the directory is read once")
	status, out, _ = moonsail(t, "analyze", dir, "-f", change)
	require.Zero(t, status, out)
	status, _, errOut := moonsail(t, "analyze", dir, "-f", "absent.yaml")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "absent.yaml")
}

func TestAnalyzeJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte(badYAML), 0o600))
	status, out, _ := moonsail(t, "analyze", path, "-o", "json", "--level", "error")
	require.Equal(t, 1, status)
	var got analysis
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, 2, got.Errors)
	require.Equal(t, path, got.Problems[1].File)
	require.Equal(t, 22, got.Problems[1].Line)
	require.Equal(t, "typo", got.Problems[1].Object.Name)
	require.Equal(t, "spec.http[0].timout", got.Problems[1].Field)
	require.Equal(t, code.UnknownField, got.Problems[1].Code)

	status, out, _ = moonsail(t, "analyze", t.TempDir(), "-o", "yaml")
	require.Equal(t, terminal.ExitFailed, status, "no objects")
	require.Contains(t, out, "problems: []")
}

// TestAnalyzeForPullRequests checks annotations of GitHub, and the level that fails.
func TestAnalyzeForPullRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte(badYAML), 0o600))
	status, out, _ := moonsail(t, "analyze", path, "-o", "github", "--level", "error")
	require.Equal(t, terminal.ExitFailed, status)
	require.Equal(t, "::error file="+path+",line=14,title=MS1201 VirtualService/shop/reviews::spec.http[0].route[0].destination.host: "+
		"service reveiws.shop.svc.cluster.local: not found: did you mean reviews.shop.svc.cluster.local?\n"+
		"::error file="+path+",line=22,title=MS1101 VirtualService/shop/typo::spec.http[0].timout: unknown field; did you mean \"timeout\"?\n", out)

	require.NoError(t, os.WriteFile(path, []byte(goodYAML), 0o600))
	for level, want := range map[string]int{"error": 0, "warning": 0, "info": terminal.ExitFailed, "all": 2} {
		status, _, _ = moonsail(t, "analyze", path, "--failure-threshold", level)
		require.Equal(t, want, status, level)
	}
}

func TestAnalyzeUsage(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	status, _, errOut := moonsail(t, "analyze", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "give a directory, a file of YAML")
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(broken, []byte("hello"), 0o600))
	t.Setenv("KUBECONFIG", broken)
	status, _, errOut = moonsail(t, "analyze")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "error: not a kubeconfig\n  where: kubeconfig "+broken)
	status, _, _ = moonsail(t, "analyze", t.TempDir(), "--allow-empty")
	require.Zero(t, status, "with arguments, the cluster is not read")
	t.Setenv("KUBECONFIG", "")
	for _, args := range [][]string{{"analyze"}, {"analyze", ".", "--level", "all"}, {"analyze", ".", "-A", "-n", "shop"}, {"analyze", ".", "-S", "MS1999"},
		{"analyze", ".", "-S", "MS1101=reviews"}, {"analyze", "--explain", "MS9"}} {
		status, _, errOut = moonsail(t, args...)
		require.Equal(t, 2, status)
		require.Contains(t, errOut, "see 'moonsail analyze --help'")
	}
}

// TestAnalyzeRootNamespace checks that policies of the root namespace are for workloads of all namespaces, also in files.
func TestAnalyzeRootNamespace(t *testing.T) {
	const text = `apiVersion: v1
kind: Namespace
metadata: {name: mesh}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: mesh, labels: {app: other, sidecar.istio.io/inject: "true"}}
spec: {containers: [{name: app, image: app}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web, sidecar.istio.io/inject: "true"}}
spec: {containers: [{name: app, image: app}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: mesh}
spec: {selector: {matchLabels: {app: web}}, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: web, namespace: mesh}
spec: {selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}
`
	const unselected = "AuthorizationPolicy/mesh/web: spec.selector: no workload of namespace mesh has app=web"
	const wrongNamespace = "PeerAuthentication/mesh/web: spec.selector: has no effect in the root namespace"
	_, out, _ := withInput(t, text, "analyze", "-")
	require.Contains(t, out, unselected)
	require.NotContains(t, out, wrongNamespace)
	_, out, _ = withInput(t, text, "analyze", "-", "--root-namespace", "mesh")
	require.NotContains(t, out, unselected)
	require.Contains(t, out, wrongNamespace)
}

// TestAnalyzeReplacesAFileThatIsNotYAML checks that a change counts as the correction of a file that cannot be read.
func TestAnalyzeReplacesAFileThatIsNotYAML(t *testing.T) {
	const object = "apiVersion: v1\nkind: Service\nmetadata:\n  labels: {name: label}\n  name: %s\n  namespace: shop\nspec:\n  ports: [{port: 80, name: http}]\n"
	for name, tc := range map[string]struct {
		broken, change string // contents
		file           string // of the change
		replaced       bool
	}{
		"the object":        {fmt.Sprintf(object, "a") + "\tselector: {}\n", fmt.Sprintf(object, "a"), "change.yaml", true},
		"in braces":         {"kind: Service\nmetadata: {name: a, namespace: shop}\n\tspec: {}\n", fmt.Sprintf(object, "a"), "change.yaml", true},
		"another name":      {fmt.Sprintf(object, "a") + "\tselector: {}\n", fmt.Sprintf(object, "b"), "broken.yaml", false},
		"one of two":        {fmt.Sprintf(object, "a") + "---\n" + fmt.Sprintf(object, "b") + "\tselector: {}\n", fmt.Sprintf(object, "a"), "change.yaml", false},
		"a file's name":     {"\tkind: Service\n", fmt.Sprintf(object, "a"), "broken.yaml", true},
		"nothing in common": {"\tkind: Service\n", fmt.Sprintf(object, "a"), "change.yaml", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			change, broken := filepath.Join(other, tc.file), filepath.Join(dir, "broken.yaml")
			require.NoError(t, os.WriteFile(broken, []byte(tc.broken), 0o600))
			require.NoError(t, os.WriteFile(change, []byte(tc.change), 0o600))
			status, out, errOut := moonsail(t, "analyze", dir, "-f", change)
			require.Equal(t, !tc.replaced, status == terminal.ExitFailed, out+errOut)
			require.Equal(t, tc.replaced, strings.Contains(out, "note: "+broken+" is not YAML: its error is left out, because the change has its objects\n"), out)
			require.Equal(t, !tc.replaced, strings.Contains(out, "is not valid YAML"), out)
		})
	}
}

// TestAnalyzeAlone checks that the end of an analysis without the other objects states that they are not known.
func TestAnalyzeAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "route.yaml")
	require.NoError(t, os.WriteFile(path, []byte(badRoute), 0o600))
	status, out, _ := moonsail(t, "analyze", path)
	require.Equal(t, terminal.ExitOK, status, out)
	require.Contains(t, out, "note: objects outside of these files are not known, so what refers to them is not checked: check them together with 'moonsail analyze DIR -f "+path+"'")
	_, out, _ = moonsail(t, "analyze", shopDir)
	require.NotContains(t, out, "note:")

	// Annotations are about the change, and not about what was wrong before.
	old := filepath.Join(dir, "old")
	require.NoError(t, os.CopyFS(old, os.DirFS(shopDir)))
	require.NoError(t, os.WriteFile(filepath.Join(old, "old.yaml"), []byte(strings.NewReplacer("name: catalog", "name: old", "[catalog]", "[cart]").Replace(badRoute)), 0o600))
	status, out, _ = moonsail(t, "analyze", old, "-f", path, "-o", "github", "--level", "error")
	require.Equal(t, terminal.ExitFailed, status)
	require.Equal(t, 1, strings.Count(out, "::error"), out)
	require.Contains(t, out, "route.yaml")
}

// badRoute sends the calls of a service of the shop to one that does not exist.
const badRoute = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: catalog, namespace: shop}\nspec: {hosts: [catalog], http: [{route: [{destination: {host: catalogue}}]}]}\n"
