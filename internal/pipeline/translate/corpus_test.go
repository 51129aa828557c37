package translate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
)

// testCase is one IR value in testdata/*.txtar: a file NAME.KIND with the value in YAML, and NAME.KIND.want with the
// message, or the error, that it translates to.
type testCase struct {
	archive string // path
	name    string // NAME.KIND
	value   []byte
	want    []byte
}

// kind returns the part of the name after the last dot.
func (c *testCase) kind() string { return c.name[strings.LastIndexByte(c.name, '.')+1:] }

func (c *testCase) title() string {
	return strings.TrimSuffix(filepath.Base(c.archive), ".txtar") + "/" + c.name
}

// translators decode an IR value and translate it, by kind of test case.
var translators = map[string]func([]byte) (proto.Message, error){
	"cluster":  func(b []byte) (proto.Message, error) { return decoded(b, cluster.Translate) },
	"listener": func(b []byte) (proto.Message, error) { return decoded(b, listener.Translate) },
	"scope":    func(b []byte) (proto.Message, error) { return decoded(b, route.Scope) },
	"vhost":    func(b []byte) (proto.Message, error) { return decoded(b, wholeVirtualHost) },
	"endpoints": func(b []byte) (proto.Message, error) {
		return decoded(b, func(v *ir.Endpoints) (proto.Message, error) { return cluster.Endpoints(v), nil })
	},
	"routeconfig": func(b []byte) (proto.Message, error) {
		return decoded(b, func(v *ir.RouteConfig) (proto.Message, error) { return route.Config(*v, false), nil })
	},
	"vhdsrouteconfig": func(b []byte) (proto.Message, error) {
		return decoded(b, func(v *ir.RouteConfig) (proto.Message, error) { return route.Config(*v, true), nil })
	},
}

func decoded[V any, M proto.Message](b []byte, translate func(*V) (M, error)) (proto.Message, error) {
	var v V
	if err := decodeValue(b, &v); err != nil {
		return nil, err
	}
	m, err := translate(&v)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// constants are names in YAML for the constants of some fields.
var constants = map[string]map[string]string{
	"discovery": {"EDS": "0", "STATIC": "1", "STRICT_DNS": "2", "LOGICAL_DNS": "3", "ORIGINAL_DST": "4", "DYNAMIC_DNS": "5"},
	"kind":      {"exact": "0", "prefix": "1", "regex": "2", "present": "3"},
	"upgrade":   {"default": "0", "never": "1", "always": "2"},
}

// decodeValue decodes YAML strictly. It replaces $TLS by tlsFolder.
func decodeValue(b []byte, into any) error {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(b), "$TLS", tlsFolder)), &node); err != nil {
		return err
	}
	nameConstants(&node)
	resolved, err := yaml.Marshal(&node)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(strings.NewReader(string(resolved)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the value in the test: %w", err)
	}
	return nil
}

func nameConstants(n *yaml.Node) {
	for _, c := range n.Content {
		nameConstants(c)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if number, ok := constants[n.Content[i].Value][n.Content[i+1].Value]; ok {
			n.Content[i+1].SetString(number)
			n.Content[i+1].Tag = "!!int"
		}
	}
}

// wholeVirtualHost returns an error for a route that cannot be translated.
func wholeVirtualHost(v *ir.VirtualHost) (*routev3.VirtualHost, error) {
	m, refused, err := route.VirtualHost(v)
	if len(refused) > 0 {
		return nil, fmt.Errorf("virtual host %s: %w", v.ResourceName(), errors.Join(refused...))
	}
	return m, err
}

// corpus reads all test cases in testdata, in order.
func corpus(t testing.TB) []testCase {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var out []testCase
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		require.NoError(t, err)
		out = append(out, casesOf(path, archive)...)
	}
	return out
}

func casesOf(path string, a *txtar.Archive) []testCase {
	wants := map[string][]byte{}
	for _, f := range a.Files {
		if name, ok := strings.CutSuffix(f.Name, ".want"); ok {
			wants[name] = f.Data
		}
	}
	var out []testCase
	for _, f := range a.Files {
		if !strings.HasSuffix(f.Name, ".want") {
			out = append(out, testCase{archive: path, name: f.Name, value: f.Data, want: wants[f.Name]})
		}
	}
	return out
}

// printed returns a message as YAML in a stable order, with $TLS for the folder of the test's files.
func printed(t testing.TB, m proto.Message, err error) string {
	t.Helper()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	j, err := protojson.Marshal(m)
	require.NoError(t, err)
	y, err := sigsyaml.JSONToYAML(j)
	require.NoError(t, err)
	return strings.ReplaceAll(string(y), tlsFolder, "$TLS")
}

// rewrite writes the archives with new results.
func rewrite(t testing.TB, results map[string]map[string]string) {
	t.Helper()
	for path, byName := range results {
		archive, err := txtar.ParseFile(path)
		require.NoError(t, err)
		out := &txtar.Archive{Comment: archive.Comment}
		for _, f := range archive.Files {
			if strings.HasSuffix(f.Name, ".want") {
				continue
			}
			out.Files = append(out.Files, f, txtar.File{Name: f.Name + ".want", Data: []byte(byName[f.Name])})
		}
		require.NoError(t, os.WriteFile(path, txtar.Format(out), 0o644))
	}
}
