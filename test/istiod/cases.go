package istiod

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/test/meshtest"
)

// testCase is a configuration with proxies, whose calls both control planes decide.
type testCase struct {
	name      string // GROUP/NAME
	documents []*unstructured.Unstructured
	proxies   []*meshtest.Proxy
	calls     []testCall // beside those that are made from the configuration
	domain    string
	mesh      map[string]any // fields of MeshConfig
}

// testCall is a call of a case's proxy.
type testCall struct {
	name  string
	proxy string
	call  simulate.Call
}

// corpus is the folder of the tests of configurations.
const corpus = "../meshtest/testdata"

// ownCorpus is the folder with the cases of this package.
const ownCorpus = "testdata"

// txtarCases reads the cases of a folder.
func txtarCases(group, dir string) ([]*testCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	var out []*testCase
	for _, file := range files {
		c, err := txtarCase(group, file)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func txtarCase(group, file string) (*testCase, error) {
	f, err := meshtest.Load(file)
	if err != nil {
		return nil, err
	}
	docs, err := meshtest.Documents(file)
	if err != nil {
		return nil, err
	}
	c := &testCase{name: group + "/" + f.Name, documents: docs, proxies: f.Proxies, domain: f.Mesh.Domain, mesh: map[string]any{}}
	if f.Mesh.Outbound != "" {
		c.mesh["outboundTrafficPolicy"] = map[string]any{"mode": string(f.Mesh.Outbound)}
	}
	if f.Mesh.RootNamespace != "istio-system" {
		return nil, fmt.Errorf("%s: the root namespace is %s: the control planes cannot change it while they run", file, f.Mesh.RootNamespace)
	}
	for _, call := range f.Calls {
		proxy := call.Proxy
		if proxy == "" {
			proxy = f.Proxies[0].Name
		}
		if call.Call.To != "" {
			c.calls = append(c.calls, testCall{name: call.Name, proxy: proxy, call: call.Call.Call})
		}
	}
	return c, nil
}

// group returns the part of a case's name before the slash.
func (c *testCase) group() string {
	group, _, _ := strings.Cut(c.name, "/")
	return group
}
