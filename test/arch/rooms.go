// Package arch holds the layout of the repository and tests it: who may import whom,
// also through others, and that the documents describe what is there.
package arch

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/moonsail/moonsail/"

// A Room is a folder of the repository with one task.
type Room struct {
	Name    string
	Layer   int      // a room imports rooms of lower layers, and itself
	About   string   // what the room is for
	Library []string // modules of others that the room imports directly; a prefix of import paths
}

// Rooms lists the rooms from top to bottom. It is the only table of layers: the import rules in
// .golangci.yml, the table in ARCHITECTURE.md and the tests of this package come from it.
var Rooms = []Room{
	{"cmd", 11, "main packages", nil},
	{"cli", 10, "the commands of moonsail", []string{
		"github.com/spf13", "golang.org/x/sync", "k8s.io/apimachinery", "k8s.io/client-go/util/jsonpath", "sigs.k8s.io/yaml",
	}},
	{"lab", 10, "experiments, and the commands of moonsail-lab", []string{
		"fortio.org", "github.com/envoyproxy/go-control-plane/envoy", "github.com/fsnotify/fsnotify", "github.com/google/pprof",
		"github.com/spf13", "golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys", "google.golang.org/grpc", "google.golang.org/protobuf",
		"k8s.io", "sigs.k8s.io/yaml",
	}},
	{"demo", 9, "the demonstration mesh", nil},
	{"deploy", 9, "Helm charts and their objects, and the container image", []string{
		"github.com/google/go-containerregistry", "golang.org/x/crypto/x509roots/fallback", "helm.sh/helm/v3", "k8s.io/apimachinery", "sigs.k8s.io/yaml",
	}},
	{"terminal", 8, "what command lines share: errors, output, progress", []string{"github.com/spf13", "golang.org/x/term", "sigs.k8s.io/yaml"}},
	{"controlplane", 8, "the running control plane: wiring, statuses, webhooks, debug pages, peers, deployed Gateways", []string{
		"github.com/envoyproxy/go-control-plane/envoy", "github.com/go-logr/logr", "github.com/prometheus/client_golang", "go.opentelemetry.io/otel",
		"google.golang.org/grpc", "google.golang.org/protobuf", "k8s.io", "sigs.k8s.io/yaml",
	}},
	{"diagnose", 7, "answers to questions about a mesh", []string{
		"github.com/cespare/xxhash/v2", "github.com/envoyproxy/go-control-plane/envoy", "github.com/google/pprof",
		"github.com/ianlancetaylor/demangle", "github.com/prometheus/client_model", "github.com/prometheus/common",
		"go.yaml.in/yaml/v3", "google.golang.org/protobuf", "sigs.k8s.io/yaml",
	}},
	{"sidecar", 6, "the sidecar: injection, interception, agent, Envoy", []string{
		"github.com/containernetworking/cni/pkg", "github.com/envoyproxy/go-control-plane/envoy", "github.com/fsnotify/fsnotify", "github.com/google/go-containerregistry",
		"github.com/google/nftables", "github.com/mdlayher/netlink", "github.com/miekg/dns", "github.com/prometheus",
		"go.yaml.in/yaml/v3", "golang.org/x/sync", "golang.org/x/sys", "google.golang.org/genproto/googleapis", "google.golang.org/grpc",
		"google.golang.org/protobuf", "istio.io/api", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/yaml",
	}},
	{"source", 6, "where objects come from", []string{
		"github.com/cespare/xxhash/v2", "github.com/fsnotify/fsnotify", "github.com/go-logr/logr", "go.yaml.in/yaml/v3", "k8s.io",
	}},
	{"pipeline", 5, "the path of a change up to the tables, the change log, and metrics", []string{
		"github.com/cespare/xxhash/v2", "github.com/envoyproxy/go-control-plane/envoy", "github.com/hashicorp/go-immutable-radix/v2",
		"github.com/prometheus/client_golang", "go.opentelemetry.io/proto/otlp/common/v1", "golang.org/x/net/http/httpguts",
		"google.golang.org/genproto/googleapis/rpc/code", "google.golang.org/protobuf",
	}},
	{"config", 4, "users' YAML, decoded into the model, and what is wrong with it", []string{
		"github.com/envoyproxy/go-control-plane/envoy", "go.yaml.in/yaml/v3", "google.golang.org/protobuf", "istio.io", "k8s.io/api",
		"k8s.io/apimachinery", "sigs.k8s.io/gateway-api", "sigs.k8s.io/yaml",
	}},
	{"security", 3, "certificates, tokens, and who may do what", []string{
		"github.com/go-jose/go-jose/v4", "github.com/spiffe/go-spiffe/v2", "google.golang.org/grpc", "google.golang.org/protobuf", "istio.io/api/security",
	}},
	{"xds", 2, "resources, versions, and their delivery to Envoy", []string{
		"github.com/cespare/xxhash/v2", "github.com/envoyproxy/go-control-plane/envoy", "github.com/hashicorp/go-immutable-radix/v2",
		"golang.org/x/net/http2", "golang.org/x/time/rate", "google.golang.org/grpc", "google.golang.org/protobuf",
	}},
	{"model", 1, "domain types", nil},
	{"base", 0, "waiting, logging and listening, for any program", nil},
	{"version", 0, "which build this is", nil},
}

// Folder is the path of the room in the repository.
func (r Room) Folder() string {
	if r.Name == "cmd" || r.Name == "deploy" {
		return r.Name
	}
	return "internal/" + r.Name
}

// under reports whether a path is a folder or below it.
func under(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func underAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return under(path, f) })
}

// roomOf returns the room that a folder belongs to.
func roomOf(folder string) (Room, bool) {
	for _, r := range Rooms {
		if under(folder, r.Folder()) {
			return r, true
		}
	}
	return Room{}, false
}

// below lists the rooms that r may import, itself first.
func (r Room) below() []Room {
	rooms := []Room{r}
	for _, other := range Rooms {
		if other.Layer < r.Layer {
			rooms = append(rooms, other)
		}
	}
	return rooms
}

// LinterRules returns the import rules of all rooms as golangci-lint's depguard reads them.
func LinterRules() string {
	var b strings.Builder
	for _, r := range Rooms {
		fmt.Fprintf(&b, "        %s: # %s\n          list-mode: strict\n          files: [\"**/%s/**\", \"!$test\"]\n          allow:\n            - $gostd\n",
			r.Name, r.About, r.Folder())
		for _, other := range r.below() {
			fmt.Fprintf(&b, "            - %s%s\n", module, other.Folder())
		}
		for _, lib := range r.Library {
			fmt.Fprintf(&b, "            - %s\n", lib)
		}
	}
	return b.String()
}

// Table returns the rooms as a Markdown table.
func Table() string {
	var b strings.Builder
	b.WriteString("| layer | room | purpose |\n|---|---|---|\n")
	for _, r := range Rooms {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", r.Layer, r.Folder(), r.About)
	}
	return b.String()
}
