package status

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestStatusesAgreeWithRouters compares, over the corpus, the listeners that statuses attach routes to with those
// that derive attaches the decoded objects to.
func TestStatusesAgreeWithRouters(t *testing.T) {
	var files []string
	for _, dir := range []string{"testdata", "../../../test/meshtest/testdata", "../../config/testdata"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
		require.NoError(t, err)
		files = append(files, found...)
	}
	compared := 0
	for _, f := range files {
		t.Run(filepath.ToSlash(f), func(t *testing.T) { compared += compareAttachments(t, f) })
	}
	require.Greater(t, compared, 50, "pairs of routes and Gateways")
}

// compareAttachments returns the number of parents of routes that it compared.
func compareAttachments(t *testing.T, file string) int {
	t.Helper()
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	st, objects := store.New(), map[model.Key]gatewayObject{}
	for _, part := range a.Files {
		if !strings.HasPrefix(part.Name, "input") {
			continue
		}
		for dec := yaml.NewDecoder(bytes.NewReader(part.Data)); ; {
			var n yaml.Node
			if dec.Decode(&n) != nil { // the end, or a test of broken YAML
				break
			}
			out := config.Decoder{}.FromNode(&n)
			if out.Object != nil {
				st.Apply([]store.Event{{Key: out.Key, Object: out.Object}})
			}
			if !gatewayapi.HasRefs(out.Key.Kind) || out.Object == nil {
				continue
			}
			require.True(t, json.Valid(out.Content))
			if refs := gatewayapi.RefsOf(out.Key.Kind, namespaced(t, out.Content, out.Key.Namespace)); refs != nil {
				objects[out.Key] = gatewayObject{Refs: refs}
			}
		}
	}
	w := &gatewayWorld{snap: st.Snapshot(), objects: objects}
	compared := 0
	for k, o := range objects {
		if o.Route == nil {
			continue
		}
		route, _ := w.snap.Get(k).(*model.VirtualService)
		for i := range o.Route.Parents {
			p := &o.Route.Parents[i]
			key := model.Key{Kind: model.KindKubernetesGateway, Namespace: p.Namespace, Name: p.Name}
			gateway, _ := w.snap.Get(key).(*model.Gateway)
			if gateway == nil || !p.IsGateway() {
				continue
			}
			listeners, _ := w.attach(k, o.Route, p, objects[key].Gateway)
			require.Equal(t, attachedServers(w, gateway, route, p), served(gateway, listeners), "%s at %s", k, key)
			compared++
		}
	}
	return compared
}

// namespaced returns a document with the namespace that its key has.
func namespaced(t *testing.T, content []byte, namespace string) []byte {
	t.Helper()
	var top map[string]any
	require.NoError(t, json.Unmarshal(content, &top))
	top["metadata"].(map[string]any)["namespace"] = namespace
	out, err := json.Marshal(top)
	require.NoError(t, err)
	return out
}

// attachedServers returns the listeners that derive attaches a decoded route to, for one of its parents.
func attachedServers(w *gatewayWorld, g *model.Gateway, route *model.VirtualService, p *gatewayapi.ParentRef) []string {
	var out []string
	one := *route
	one.Gateways = []string{p.GatewayName()}
	for i := range g.Servers {
		server := &g.Servers[i]
		if server.Namespaces != nil && server.Namespaces.Matches(w.snap.NamespaceLabels(route.Namespace)) {
			server = server.Admit([]string{route.Namespace})
		}
		if slices.Contains(route.Gateways, one.Gateways[0]) && g.Attach(server, &one).Reason == model.Attached {
			out = append(out, server.Port.Name)
		}
	}
	return out
}

// served leaves out listeners that the decoded Gateway does not have, such as those without a certificate.
func served(g *model.Gateway, listeners []string) []string {
	var out []string
	for _, name := range listeners {
		if slices.ContainsFunc(g.Servers, func(s model.GatewayServer) bool { return s.Port.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}
