package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// forbidden is what packages must not reach, not even through others.
var forbidden = []struct {
	folders []string // nil: all of cmd and internal
	except  []string
	imports []string // and what is below them
	because string
}{
	{
		imports: []string{"istio.io/istio"},
		because: "Moonsail is its own implementation of Istio's API; istio.io/api has the types",
	},
	{
		imports: []string{"github.com/envoyproxy/go-control-plane/pkg"},
		because: "Moonsail has its own tables, ledger and server; only the generated protos are used",
	},
	{
		folders: []string{"cmd/moonsail"},
		imports: []string{module + "internal/lab", "fortio.org"},
		because: "the mesh's binary contains no load generator and no experiments; cmd/moonsail-lab does",
	},
	{
		folders: []string{"cmd/moonsail"},
		imports: []string{"k8s.io/client-go/kubernetes/typed", "k8s.io/client-go/applyconfigurations", "k8s.io/client-go/informers", "k8s.io/client-go/tools/leaderelection"},
		because: "they cost 260 packages; use source/kube.API and controlplane/election",
	},
	{
		folders: []string{"cmd/moonsail"},
		imports: []string{"helm.sh/helm/v3/pkg/action", "helm.sh/helm/v3/pkg/kube", "helm.sh/helm/v3/pkg/cli", "helm.sh/helm/v3/pkg/registry"},
		because: "they import kubectl and registries; only Helm's engine is needed to render charts",
	},
	{
		imports: []string{module + "test", "testing", "github.com/stretchr/testify"},
		because: "production never imports test code",
	},
	{
		folders: []string{"internal/pipeline", "internal/diagnose", "internal/source", "internal/config"},
		imports: []string{module + "internal/xds/server", module + "internal/xds/http2"},
		because: "reports and questions about proxies go through xds/distribution; transport is at the edge",
	},
	{
		folders: []string{"internal/model", "internal/pipeline/ir", "internal/pipeline/store", "internal/pipeline/derive"},
		imports: []string{"github.com/envoyproxy"},
		because: "Envoy's protos begin in translate; what comes before speaks the mesh's own language",
	},
	{
		folders: []string{"internal/pipeline/translate"},
		imports: []string{module + "internal/pipeline/store", module + "internal/pipeline/derive"},
		because: "translate reads only the IR, so that it cannot depend on an input that derive did not declare",
	},
	{
		folders: []string{"internal/pipeline/translate/cluster", "internal/pipeline/translate/security", "internal/pipeline/translate/telemetry"},
		imports: []string{module + "internal/pipeline/translate/listener", module + "internal/pipeline/translate/route"},
		because: "listener assembles what the other packages of translate make, and route may use them",
	},
	{
		folders: []string{"internal/model", "internal/pipeline/ir", "internal/pipeline/store", "internal/pipeline/derive", "internal/pipeline/translate",
			"internal/config", "internal/source", "internal/xds/names", "internal/xds/resource",
			"internal/xds/table", "internal/xds/ledger", "internal/xds/http2"},
		imports: []string{"google.golang.org/grpc"},
		because: "the network is at the edge: grpc only in xds/server, xds/fetch, controlplane, sidecar/agent and lab",
	},
	{
		folders: []string{"internal/model", "internal/pipeline/ir", "internal/pipeline/store", "internal/pipeline/derive", "internal/pipeline/translate",
			"internal/xds", "internal/pipeline/changelog", "internal/controlplane/debug", "internal/sidecar/agent", "internal/sidecar/envoy"},
		imports: []string{"k8s.io", "istio.io/client-go"},
		because: "Kubernetes ends in config; later stages read the model",
	},
	{
		except:  []string{"internal/source/kube", "internal/controlplane", "internal/lab", "internal/cli", "internal/demo", "cmd/moonsail", "cmd/moonsail-lab"},
		imports: []string{"k8s.io/client-go"},
		because: "only source/kube, controlplane and lab use a Kubernetes API server; cli, demo and the programs reach it through them",
	},
	{
		folders: []string{"internal/model", "internal/pipeline/ir", "internal/pipeline/store", "internal/pipeline/derive",
			"internal/xds/names", "internal/xds/resource", "internal/xds/table", "internal/xds/ledger"},
		imports: []string{"net/http"},
		because: "it is pure: the network is at the edge (translate and config may name HTTP's status codes)",
	},
	{
		folders: []string{"internal/model", "internal/pipeline/ir", "internal/pipeline/store", "internal/pipeline/derive", "internal/pipeline/translate",
			"internal/config", "internal/xds/names", "internal/xds/resource", "internal/xds/table", "internal/xds/ledger"},
		imports: []string{"os/exec", "os/signal", "github.com/prometheus", "github.com/spf13"},
		because: "it is pure: processes, metrics and flags are at the edge",
	},
}

// pkg is what `go list` says of a package.
type pkg struct {
	Name, Doc  string
	ImportPath string
	Imports    []string
	Deps       []string
}

// folder is the package's path in the repository.
func (p pkg) folder() string { return strings.TrimPrefix(p.ImportPath, module) }

// production lists the packages of cmd and internal.
var production = sync.OnceValues(func() ([]pkg, error) {
	if err := look(); err != nil {
		return nil, err
	}
	var errOut bytes.Buffer
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Imports,Deps", "./cmd/...", "./internal/...")
	cmd.Dir, cmd.Stderr = root, &errOut
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, errOut.String())
	}
	var list []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
})

// look reads the folders that `go list` reads: the test cache knows only what the test
// itself has opened, and must not keep a result when a source file changes.
func look() error {
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
}

const root = "../.."

func packages(t *testing.T) []pkg {
	t.Helper()
	list, err := production()
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list
}

func TestRoomsImportDownwards(t *testing.T) {
	for _, p := range packages(t) {
		room, ok := roomOf(p.folder())
		if !ok {
			t.Errorf("%s: belongs to no room: add its folder to Rooms in test/arch/rooms.go", p.folder())
			continue
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			if other, ok := roomOf(target); !ok || other.Name != room.Name && other.Layer >= room.Layer {
				t.Errorf("%s: imports %s: room %s is not below room %s", p.folder(), target, other.Name, room.Name)
			}
		}
	}
}

// TestRoomsHaveDocs requires that the package comment of each room has what a new reader needs: its layer, its packages, and
// where to start.
func TestRoomsHaveDocs(t *testing.T) {
	for _, room := range Rooms {
		if room.Name == "cmd" {
			continue
		}
		t.Run(room.Name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(root, room.Folder(), "*.go"))
			require.NoError(t, err)
			text := ""
			for _, file := range files {
				content, err := os.ReadFile(file)
				require.NoError(t, err)
				if comment, _, found := strings.Cut(string(content), "\npackage "+room.Name+"\n"); found && strings.Contains(comment, "// Package "+room.Name+" ") {
					text = comment
				}
			}
			require.NotEmpty(t, text, "%s has no package comment: add a doc.go that says what the room is for and where to start reading", room.Folder())
			if room.Name == "deploy" || room.Name == "version" {
				return // one package, and its comment
			}
			require.Contains(t, text, "Start reading at", "%s: where does a new reader begin?", room.Folder())
			require.Contains(t, text, fmt.Sprintf("Layer %d of ARCHITECTURE.md", room.Layer), room.Folder())
			for _, p := range packages(t) {
				name, inside := strings.CutPrefix(p.folder(), room.Folder()+"/")
				if inside && !strings.Contains(name, "/") {
					// A line of the list begins with one name, or with several and commas.
					require.Regexp(t, `(?m)^//\t {0,2}(\w+, )*`+regexp.QuoteMeta(name)+`(,|\s|$)`, text, "%s does not list this package", room.Folder())
				}
			}
		})
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, rule := range forbidden {
			if rule.folders != nil && !underAny(p.folder(), rule.folders) || underAny(p.folder(), rule.except) {
				continue
			}
			for _, dep := range p.Deps {
				if underAny(dep, rule.imports) {
					t.Errorf("%s reaches %s (%s): %s", p.folder(), dep, way(t, p, dep), rule.because)
				}
			}
		}
	}
}

// way is which direct import of p leads to dep.
func way(t *testing.T, p pkg, dep string) string {
	if slices.Contains(p.Imports, dep) {
		return "directly"
	}
	for _, q := range packages(t) {
		if slices.Contains(p.Imports, q.ImportPath) && slices.Contains(q.Deps, dep) {
			return "through " + q.folder()
		}
	}
	return "through others' code; go mod why -m tells"
}

// TestRulesSee makes sure that the test above can fail: the rules match what is there.
func TestRulesSee(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		for _, dep := range p.Deps {
			for _, want := range []string{"google.golang.org/grpc", "github.com/envoyproxy", "k8s.io", "net/http"} {
				seen[want] = seen[want] || under(dep, want)
			}
		}
	}
	require.Len(t, seen, 4)
	for want, ok := range seen {
		require.True(t, ok, "no package reaches %s any more: has it moved?", want)
	}
	require.True(t, under("k8s.io/api/core/v1", "k8s.io"))
	require.False(t, under("k8s.iox", "k8s.io"))
}

// Lines between these two in .golangci.yml are generated from Rooms.
const (
	generatedBegin = "        # BEGIN import rules: go test ./test/arch -run TestLinterRules -update\n"
	generatedEnd   = "        # END import rules\n"
)

// Lines between these two in ARCHITECTURE.md are generated from Rooms.
const (
	roomsBegin = "<!-- BEGIN rooms: go test ./test/arch -run TestRoomsAreDescribed -update -->\n"
	roomsEnd   = "<!-- END rooms -->\n"
)

var update = flag.Bool("update", false, "write what is generated from this package's tables into .golangci.yml, ARCHITECTURE.md and testdata")

func TestLinterRulesFollowRooms(t *testing.T) {
	requireGenerated(t, ".golangci.yml", generatedBegin, generatedEnd, LinterRules())
}

func TestRoomsAreDescribed(t *testing.T) {
	requireGenerated(t, "ARCHITECTURE.md", roomsBegin, roomsEnd, Table())
}

// requireGenerated holds the lines between begin and end of a file to want; -update writes them.
func requireGenerated(t *testing.T, name, begin, end, want string) {
	t.Helper()
	before, rest, ok := strings.Cut(read(t, name), begin)
	require.True(t, ok, "%s: no line %q", name, begin)
	have, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s: no line %q", name, end)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.True(t, want == have, "%s: the lines below %q differ from Rooms in test/arch/rooms.go: run: go test ./test/arch -update", name, begin)
}

// TestPackagesAreDescribed holds each package to a doc comment that names it.
func TestPackagesAreDescribed(t *testing.T) {
	for _, p := range packages(t) {
		switch first, _, _ := strings.Cut(p.Doc, "."); {
		case p.Doc == "":
			t.Errorf("%s: no doc comment: describe the purpose of the package", p.folder())
		case p.Name != "main" && !strings.HasPrefix(first, "Package "+p.Name+" "):
			t.Errorf("%s: the doc comment begins with %q: begin with %q", p.folder(), first, "Package "+p.Name)
		}
	}
}
