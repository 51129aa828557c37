package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// compiledWorld has objects, and the tables that the pipeline makes of them for a proxy.
type compiledWorld struct {
	t       *testing.T
	objects []model.Object
	store   *store.Store
}

// compile reads documents. Problems of usable objects do not matter.
func compile(t *testing.T, docs ...string) *compiledWorld {
	t.Helper()
	w := &compiledWorld{t: t, store: store.New()}
	for _, doc := range docs {
		o, _ := config.Decoder{}.FromYAML([]byte(doc))
		require.NotNil(t, o, doc)
		w.put(o)
	}
	return w
}

func (w *compiledWorld) put(o model.Object) {
	w.objects = append(w.objects, o)
	w.store.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
}

// tables returns the tables of a proxy. Its IP addresses and domain are filled in.
func (w *compiledWorld) tables(p *model.Proxy) []*table.Table {
	p.DNSDomain = p.Namespace + ".svc.cluster.local"
	if p.IPs == nil {
		p.IPs = []string{"10.9.0.1"}
	}
	if p.Interception == "" && p.Type == model.ProxySidecar {
		p.Interception = model.InterceptRedirect
	}
	p.Modules = true
	out, failures := engine.CompileTables(model.DefaultMesh(), w.objects, p, derive.Sharding{}, "")
	require.Empty(w.t, failures)
	return out
}

// part is a resource that a proxy gets.
func (w *compiledWorld) part(p *model.Proxy, typ resource.Type, name string) distribution.Part {
	w.t.Helper()
	var names []string
	for _, tab := range w.tables(p) {
		if e := tab.State().Get(typ, name); e != nil {
			return distribution.Part{Type: typ, Entry: e, Group: tab.Group(), Proxy: p}
		}
		for e := range tab.State().All(typ) {
			names = append(names, e.Name)
		}
	}
	require.Fail(w.t, "no such resource", "%s %s: there are %v", typ, name, names)
	return distribution.Part{}
}

// concerns returns the resources that a query about an object is about: "CDS NAME ...", in the order of
// types and names.
func (w *compiledWorld) concerns(p *model.Proxy, k model.Key) []string {
	var out []string
	for typ := range resource.NumTypes {
		if typ != resource.RouteConfig && typ.String() == resource.RouteConfig.String() {
			continue // another form of the same
		}
		for _, tab := range w.tables(p) {
			q := &distribution.Query{Revision: tab.State().Revision, Object: k}
			for e := range tab.State().All(typ) {
				if _, is := q.Resources(tab.State(), typ)[e.Name]; is {
					out = append(out, typ.String()+" "+e.Name)
				}
			}
		}
	}
	return out
}

// webService has a port for requests at the workloads of shop that have the label app: web.
const webService = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.0.0.2, selector: {app: web}, ports: [{name: http, port: 80}]}"

// keyOf reads "Kind/namespace/name".
func keyOf(text string) model.Key {
	parts := strings.SplitN(text, "/", 3)
	return model.Key{Kind: model.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}
}

func texts(keys []model.Key) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.String())
	}
	return out
}
