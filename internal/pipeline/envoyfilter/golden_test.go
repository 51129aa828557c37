package envoyfilter

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

var update = flag.Bool("update", false, "write the results to testdata")

// TestGolden applies EnvoyFilters (NAME.yaml, in order) to resources (NAME.listener, NAME.cluster, NAME.vhost,
// NAME.routes) of each archive in testdata, and compares the results with NAME.KIND.want.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			golden(t, file, archive)
		})
	}
}

func golden(t *testing.T, file string, a *txtar.Archive) {
	t.Helper()
	set, reported := setOf(t, a)
	out := &txtar.Archive{Comment: a.Comment}
	wants := map[string]string{}
	for _, f := range a.Files {
		if name, ok := strings.CutSuffix(f.Name, ".want"); ok {
			wants[name] = string(f.Data)
		}
	}
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, ".want") {
			continue
		}
		out.Files = append(out.Files, f)
		if strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		got := reported + patched(t, set, f)
		reported = ""
		out.Files = append(out.Files, txtar.File{Name: f.Name + ".want", Data: []byte(got)})
		if !*update {
			require.Equal(t, wants[f.Name], got, f.Name)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(out), 0o644))
	}
}

// setOf decodes EnvoyFilters as the sources do, and returns the problems with them.
func setOf(t *testing.T, a *txtar.Archive) (set *Set, reported string) {
	t.Helper()
	v := &ir.Patches{}
	for _, f := range a.Files {
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		o, problems := config.Decoder{}.FromYAML(f.Data)
		for _, p := range problems {
			reported += "# " + p.String() + "\n"
		}
		filter := o.(*model.EnvoyFilter)
		for i := range filter.Patches {
			v.List = append(v.List, ir.Patch{EnvoyPatch: &filter.Patches[i], Origin: filter.Key})
		}
	}
	set, left := New(v)
	for _, p := range left {
		reported += "# " + p.Error() + "\n"
	}
	return set, reported
}

// patched patches a resource and checks that the original did not change.
func patched(t *testing.T, set *Set, f txtar.File) string {
	t.Helper()
	var out proto.Message
	var problems []Problem
	present := true
	switch kind := filepath.Ext(f.Name); kind {
	case ".listener":
		m := read(t, f, &listenerv3.Listener{})
		before := proto.Clone(m)
		out, present, problems = set.Listener(servingPort8080, m)
		require.True(t, proto.Equal(before, m), "the original message must not change")
	case ".cluster":
		m := read(t, f, &clusterv3.Cluster{})
		before := proto.Clone(m)
		of, _ := resourcename.ParseCluster(m.Name)
		v := &ir.Cluster{Name: m.Name, Of: of, Service: ir.ServiceRef{Host: "web.shop.svc.cluster.local"}}
		out, present, problems = set.Cluster(v, m)
		require.True(t, proto.Equal(before, m), "the original message must not change")
	case ".vhost":
		m := read(t, f, &routev3.VirtualHost{})
		before := proto.Clone(m)
		rc, name, _ := strings.Cut(m.Name, "/")
		out, present, problems = set.VirtualHost(portRoutes(rc), name, m)
		require.True(t, proto.Equal(before, m), "the original message must not change")
	case ".routes":
		m := read(t, f, &routev3.RouteConfiguration{})
		out, problems = set.RouteConfig(portRoutes(m.Name), m)
	default:
		t.Fatalf("%s: unknown kind of resource", f.Name)
	}
	text := ""
	for _, p := range problems {
		text += "# " + p.Error() + "\n"
	}
	if !present {
		return text + "# removed\n"
	}
	return text + printed(t, out)
}

// servingPort8080 is the IR of a listener with the inbound routes of port 8080.
var servingPort8080 = &ir.Listener{Chains: []ir.FilterChain{{HTTP: &ir.HTTPChain{
	Inline: &ir.InlineRoutes{RouteConfig: ir.RouteConfig{Name: ir.InboundRoutes(8080).Name, Of: ir.InboundRoutes(8080)}},
}}}}

// portRoutes is the key of a sidecar's route configuration or of a shard of it: "80", "host:80", "80~16~3".
func portRoutes(name string) ir.RouteConfigKey {
	whole, _, _ := strings.Cut(name, "~")
	port, _ := strconv.ParseUint(whole[strings.LastIndexByte(whole, ':')+1:], 10, 32)
	return ir.RouteConfigKey{Name: whole, Port: uint32(port)}
}

func read[M proto.Message](t *testing.T, f txtar.File, m M) M {
	t.Helper()
	j, err := yaml.YAMLToJSON(f.Data)
	require.NoError(t, err)
	require.NoError(t, protojson.Unmarshal(j, m), f.Name)
	return m
}

func printed(t *testing.T, m proto.Message) string {
	t.Helper()
	j, err := protojson.Marshal(m)
	require.NoError(t, err)
	y, err := yaml.JSONToYAML(j)
	require.NoError(t, err)
	return string(y)
}
