package compare

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// dump has the parts of Envoy's config dump that this package reads. The keys of the different dumps do not collide.
type dump struct {
	Configs []struct {
		ControlPlane Kind   `json:"control_plane"` // of WriteDump
		Version      string `json:"version_info"`
		Bootstrap    *struct {
			Node json.RawMessage `json:"node"`
		} `json:"bootstrap"`
		StaticClusters  []dumped `json:"static_clusters"`
		DynamicClusters []dumped `json:"dynamic_active_clusters"`
		Listeners       []struct {
			Active *struct {
				dumped
				Version string `json:"version_info"`
			} `json:"active_state"`
		} `json:"dynamic_listeners"`
		Routes          []dumped `json:"dynamic_route_configs"`
		StaticEndpoints []dumped `json:"static_endpoint_configs"`
		Endpoints       []dumped `json:"dynamic_endpoint_configs"`
	} `json:"configs"`
}

type dumped struct {
	Cluster   any `json:"cluster"`
	Listener  any `json:"listener"`
	Route     any `json:"route_config"`
	Endpoints any `json:"endpoint_config"`
}

// ReadDump returns the text of a file with a config dump. A name that ends in .gz is that of a gzipped file.
func ReadDump(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if filepath.Ext(path) != ".gz" {
		return io.ReadAll(f)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return io.ReadAll(z)
}

// ParseDump reads a proxy from the config dump of its Envoy: /config_dump?include_eds, or what "istioctl proxy-config all POD
// -o json" prints. The bootstrap in it names the proxy. Extensions that this binary does not know are kept by their type, as
// far as the simulator can do without their configuration.
func ParseDump(text []byte, nodes NodeParser) (*Proxy, error) {
	var d dump
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("config dump: %w", err)
	}
	p, err := d.proxy(nodes)
	if err != nil {
		return nil, fmt.Errorf("config dump: %w", err)
	}
	p.Kind = d.kind()
	for _, tree := range d.resources() {
		if err := p.addJSON(tree); err != nil {
			return nil, fmt.Errorf("config dump of %s: %w", p.Name, err)
		}
	}
	if len(p.World.Listeners) == 0 {
		return nil, fmt.Errorf("config dump of %s: no dynamic listeners: dump all sections", p.Name)
	}
	return p, nil
}

// proxy returns the proxy of the bootstrap, without resources.
func (d *dump) proxy(nodes NodeParser) (*Proxy, error) {
	for i := range d.Configs {
		b := d.Configs[i].Bootstrap
		if b == nil {
			continue
		}
		envoy := &corev3.Node{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b.Node, envoy); err != nil {
			return nil, fmt.Errorf("node: %w", err)
		}
		n, err := nodes.parse(envoy)
		if err != nil {
			return nil, err
		}
		return n.proxy(), nil
	}
	return nil, errors.New("no bootstrap with a node id: dump all sections")
}

// kind returns the kind of the control plane of the dump's resources.
func (d *dump) kind() Kind {
	for i := range d.Configs {
		c := &d.Configs[i]
		versions := []string{c.Version}
		for _, l := range c.Listeners {
			if l.Active != nil {
				versions = append(versions, l.Active.Version)
			}
		}
		if c.ControlPlane == Istiod || c.ControlPlane == Moonsail {
			return c.ControlPlane
		}
		for _, v := range versions {
			if k := kindOf(v); k != Unknown {
				return k
			}
		}
	}
	return Unknown
}

// resources returns all resources, as JSON trees.
func (d *dump) resources() []any {
	var out []any
	keep := func(trees ...any) {
		for _, t := range trees {
			if t != nil {
				out = append(out, t)
			}
		}
	}
	for i := range d.Configs {
		c := &d.Configs[i]
		for _, list := range [][]dumped{c.DynamicClusters, c.StaticClusters, c.Routes, c.Endpoints, c.StaticEndpoints} {
			for _, one := range list {
				keep(one.Cluster, one.Route, one.Endpoints)
			}
		}
		for _, l := range c.Listeners {
			if l.Active != nil {
				keep(l.Active.Listener)
			}
		}
	}
	return out
}

func (p *Proxy) addJSON(tree any) error {
	text, err := json.Marshal(understood(tree))
	if err != nil {
		return err
	}
	packed := &anypb.Any{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, packed); err != nil {
		return err
	}
	m, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	p.Add(m)
	return nil
}

// Add adds a resource.
func (p *Proxy) Add(m proto.Message) { p.World.Add(m) }

// understood replaces messages of types that this binary does not know by google.protobuf.Struct, whose field "type" then has the
// name of the type.
func understood(tree any) any {
	switch t := tree.(type) {
	case []any:
		for i := range t {
			t[i] = understood(t[i])
		}
	case map[string]any:
		for k := range t {
			t[k] = understood(t[k])
		}
		url, ok := t["@type"].(string)
		if !ok {
			return t
		}
		name := url[strings.LastIndexByte(url, '/')+1:]
		if name == structName {
			return t
		}
		if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
			t["type"] = name
			delete(t, "@type")
			return map[string]any{"@type": "type.googleapis.com/" + structName, "value": t}
		}
	}
	return tree
}

const structName = "google.protobuf.Struct"
