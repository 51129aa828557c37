// Package configdump has the shape of the config dump of Envoy's admin interface: /config_dump, or what
// "istioctl proxy-config all POD -o json" prints.
//
// Parse leaves resources encoded. Resource decodes one, and ResourceOfAnyExtension also one with extensions that this
// binary does not know. Package encoding/json writes a Dump.
package configdump

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// Query is the query of a dump with all resources.
	Query = "include_eds"
	// SecretsMask is the "mask" of a dump of the secrets only, which is a small part of the dump.
	SecretsMask = "dynamic_active_secrets,dynamic_warming_secrets"
)

// Dump is a config dump.
type Dump struct {
	Configs []Section `json:"configs"`
}

// Section has the fields of all kinds of sections. Their keys do not collide.
type Section struct {
	// ControlPlane is of our own dumps only: the kind of the control plane that sent the resources.
	ControlPlane string `json:"control_plane,omitempty"`

	Version         string     `json:"version_info,omitempty"`
	Bootstrap       *Bootstrap `json:"bootstrap,omitempty"`
	StaticClusters  []Cluster  `json:"static_clusters,omitempty"`
	Clusters        []Cluster  `json:"dynamic_active_clusters,omitempty"`
	WarmingClusters []Cluster  `json:"dynamic_warming_clusters,omitempty"`
	Listeners       []Listener `json:"dynamic_listeners,omitempty"`
	Routes          []Route    `json:"dynamic_route_configs,omitempty"`
	StaticEndpoints []Endpoint `json:"static_endpoint_configs,omitempty"`
	Endpoints       []Endpoint `json:"dynamic_endpoint_configs,omitempty"`
	// Secrets differ in form, and are decoded one by one.
	Secrets        []json.RawMessage `json:"dynamic_active_secrets,omitempty"`
	WarmingSecrets []json.RawMessage `json:"dynamic_warming_secrets,omitempty"`
}

// Bootstrap names the proxy.
type Bootstrap struct {
	Node json.RawMessage `json:"node"` // an envoy.config.core.v3.Node
}

// Cluster has an envoy.config.cluster.v3.Cluster, encoded with its type.
type Cluster struct {
	Cluster json.RawMessage `json:"cluster,omitempty"`
}

// Route has an envoy.config.route.v3.RouteConfiguration, encoded with its type.
type Route struct {
	RouteConfig json.RawMessage `json:"route_config,omitempty"`
}

// Endpoint has an envoy.config.endpoint.v3.ClusterLoadAssignment, encoded with its type.
type Endpoint struct {
	Endpoints json.RawMessage `json:"endpoint_config,omitempty"`
}

// Listener is a listener in up to two forms. While a listener drains, it has none.
type Listener struct {
	Name    string         `json:"name,omitempty"`
	Active  *ListenerState `json:"active_state,omitempty"`
	Warming *ListenerState `json:"warming_state,omitempty"`
	Error   *ListenerError `json:"error_state,omitempty"`
}

// ListenerState is one form of a listener.
type ListenerState struct {
	Version  string          `json:"version_info,omitempty"`
	Listener json.RawMessage `json:"listener,omitempty"`
}

// ListenerError is about the last form that Envoy refused.
type ListenerError struct {
	Details string `json:"details"`
}

// Parse reads a dump.
func Parse(text []byte) (*Dump, error) {
	d := &Dump{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("config dump: %w", err)
	}
	return d, nil
}

// ReadFile returns the text of a file with a dump. A name that ends in .gz is that of a gzipped file.
func ReadFile(path string) ([]byte, error) {
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

// Resource decodes a resource. One with an extension that this binary does not know is an error.
func Resource(text json.RawMessage) (proto.Message, error) {
	packed := &anypb.Any{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, packed); err != nil {
		return nil, err
	}
	return packed.UnmarshalNew()
}

// ResourceOfAnyExtension decodes a resource. Each message of a type that this binary does not know becomes a
// google.protobuf.Struct, whose field "type" has the name of the type.
func ResourceOfAnyExtension(text json.RawMessage) (proto.Message, error) {
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	known, err := json.Marshal(withStructs(tree))
	if err != nil {
		return nil, err
	}
	return Resource(known)
}

const structName = "google.protobuf.Struct"

// withStructs replaces messages of unknown types in a JSON tree.
func withStructs(tree any) any {
	switch t := tree.(type) {
	case []any:
		for i := range t {
			t[i] = withStructs(t[i])
		}
	case map[string]any:
		for k := range t {
			t[k] = withStructs(t[k])
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
