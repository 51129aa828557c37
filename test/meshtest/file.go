package meshtest

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// File is one test.
type File struct {
	Path    string
	Name    string // of the file, without its ending
	Comment string
	Objects []model.Object
	Mesh    *model.Mesh
	Proxies []*Proxy
	Calls   []Case

	problems     []string // found by decoding
	wantProblems []string
	wantCheck    []string
	dns          map[string]string
	goldens      []golden
	archive      *txtar.Archive
}

// golden is a part that holds whole resources.
type golden struct {
	part  int // index in the archive
	proxy string
	kind  string
}

// Load reads a test file.
func Load(path string) (*File, error) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{
		Path: path, Name: strings.TrimSuffix(filepath.Base(path), ".txtar"),
		Comment: string(a.Comment), Mesh: model.DefaultMesh(), archive: a,
	}
	for i, part := range a.Files {
		if err := f.add(i, part); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, part.Name, err)
		}
	}
	if len(f.Proxies) == 0 {
		return nil, fmt.Errorf("%s: has no proxy.yaml", path)
	}
	for i := range f.Calls {
		if err := f.prepare(&f.Calls[i]); err != nil {
			return nil, fmt.Errorf("%s: call %q: %w", path, f.Calls[i].Name, err)
		}
	}
	return f, nil
}

func (f *File) add(i int, part txtar.File) error {
	switch name := part.Name; {
	case strings.HasPrefix(name, "input") && strings.HasSuffix(name, ".yaml"):
		return f.decode(name, part.Data)
	case name == "proxy.yaml":
		return f.addProxies(part.Data)
	case name == "mesh.yaml":
		return f.addMesh(part.Data)
	case name == "dns.yaml":
		return strict(part.Data, &f.dns)
	case name == "calls.yaml":
		return strict(part.Data, &f.Calls)
	case name == "check.yaml":
		return strict(part.Data, &f.wantCheck)
	case name == "problems.yaml":
		return strict(part.Data, &f.wantProblems)
	case strings.HasPrefix(name, "want/"):
		return f.addGolden(i, strings.TrimPrefix(name, "want/"))
	}
	return fmt.Errorf("is not a part of a test")
}

func (f *File) addGolden(i int, name string) error {
	proxy, kind, several := strings.Cut(strings.TrimSuffix(name, ".yaml"), "/")
	if !several {
		proxy, kind = "", proxy
	}
	if _, ok := resourceLists[kind]; !ok {
		return fmt.Errorf("want a golden of listeners, routes, clusters or endpoints")
	}
	f.goldens = append(f.goldens, golden{part: i, proxy: proxy, kind: kind})
	return nil
}

// fromCluster is the part with objects as a Kubernetes API server gives them.
const fromCluster = "input-cluster.yaml"

// decode reads the documents of one part with the decoder that all sources use.
func (f *File) decode(name string, data []byte) error {
	docs := yaml.NewDecoder(bytes.NewReader(data))
	for i := 0; ; i++ {
		var n yaml.Node
		err := docs.Decode(&n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		out := config.Decoder{Domain: f.Mesh.Domain, PodsListed: name == fromCluster}.FromNode(&n)
		for _, p := range out.Problems {
			if p.Severity == problem.SeverityError {
				f.problems = append(f.problems, p.String())
			}
		}
		if out.Object == nil && out.Salvaged != nil {
			out.Object = out.Salvaged.Object
		}
		if out.Object == nil {
			continue
		}
		m := out.Object.Metadata()
		m.Origin = fmt.Sprintf("%s:%d", name, n.Line)
		m.ResourceVersion = fmt.Sprintf("%s#%d", name, i)
		f.Objects = append(f.Objects, out.Object)
	}
}

// strict decodes YAML and refuses unknown fields.
func strict(data []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// addMesh applies differences to the default mesh configuration.
func (f *File) addMesh(data []byte) error {
	var m struct {
		Domain        string
		RootNamespace string             `yaml:"rootNamespace"`
		Outbound      model.OutboundMode `yaml:"outboundTrafficPolicy"`
		// Several are external authorizers of one workload.
		Several bool `yaml:"severalAuthorizers"`
		// The rest are settings of istiod's variables.
		ScopeGateway  bool  `yaml:"scopeGatewayToNamespace"`
		StrictMerging *bool `yaml:"strictGatewayMerging"`
		AbsoluteFQDN  *bool `yaml:"absoluteFQDN"`
		HTTP10        bool  `yaml:"http10"`
		RouteClusters bool  `yaml:"gatewayClustersOfRoutes"`
		Headless      bool  `yaml:"balanceHeadless"`
	}
	if err := strict(data, &m); err != nil {
		return err
	}
	set := func(to *string, v string) {
		if v != "" {
			*to = v
		}
	}
	set(&f.Mesh.Domain, m.Domain)
	set(&f.Mesh.RootNamespace, m.RootNamespace)
	set((*string)(&f.Mesh.Outbound), string(m.Outbound))
	f.Mesh.SeveralAuthorizers = m.Several
	f.Mesh.ScopeGatewayToNamespace, f.Mesh.HTTP10 = m.ScopeGateway, m.HTTP10
	f.Mesh.GatewayClustersOfRoutes, f.Mesh.BalanceHeadless = m.RouteClusters, m.Headless
	if m.StrictMerging != nil {
		f.Mesh.StrictGatewayMerging = *m.StrictMerging
	}
	if m.AbsoluteFQDN != nil {
		f.Mesh.AbsoluteFQDN = *m.AbsoluteFQDN
	}
	return nil
}
