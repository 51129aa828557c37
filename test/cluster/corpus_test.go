package cluster

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/meshtest"
	"github.com/moonsail/moonsail/test/short"
)

// corpus is where the tests of configurations are.
const corpus = "../meshtest/testdata/*.txtar"

// refused are the objects of the corpus that the API server refuses, by file, with a part of its message. Both sides
// leave them out.
var refused = map[string]map[string]string{
	// A misspelt field: the decoder reports the same for files.
	"problems": {"VirtualService/default/unknown": ".spec.http[0].rout: field not declared in schema"},
	// A rule of the definition, which files are not checked with.
	"gateway-kubernetes-conflicts": {"Gateway/edge/web": "Combination of port, protocol and hostname must be unique"},
	// Experimental channel; the cluster has the definitions of the standard channel.
	"gateway-kubernetes-filters":   {"HTTPRoute/shop/a": ".spec.rules[0].filters[0].externalAuth: field not declared in schema"},
	"gateway-kubernetes-redirects": {"HTTPRoute/edge/several": "exactly one PathPrefix match must be specified"},
	"gateway-kubernetes-retries":   {"HTTPRoute/edge/web": ".spec.rules[0].retry: field not declared in schema"},
}

// withoutKubelet are cases with Services whose Pods are on nodes of the case: no kubelet gives these Pods addresses.
var withoutKubelet = []string{"topology-clients"}

// TestCorpusThroughACluster writes each case of the corpus into a real API server, lets its controllers act, and reads
// the objects from there. Every proxy must get the same bytes as from the case's files.
//
// What no case states but a cluster needs is filled in: the containers of Pods, whose addresses are passed to the
// kubelet. EndpointSlices that the cluster creates count only for services without slices in the case. Creation times
// are those of the case, because an API server sets them itself.
func TestCorpusThroughACluster(t *testing.T) {
	files, err := filepath.Glob(corpus)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	c := kubetest.Start(t, "--service-cidr=10.0.0.0/12,fd00:96::/112")
	c.BareNodes(t)
	followers := map[string]*store.Store{} // by the fields of the mesh that they depend on
	for _, file := range short.Sample(files) {
		f, err := meshtest.Load(file)
		require.NoError(t, err)
		if slices.Contains(withoutKubelet, f.Name) {
			continue
		}
		mesh := f.Mesh.Domain + " " + f.Mesh.RootNamespace
		if followers[mesh] == nil {
			followers[mesh] = follow(t, c, f.Mesh)
		}
		t.Run(f.Name, func(t *testing.T) { throughCluster(t, c, file, f, followers[mesh]) })
	}
}

func throughCluster(t *testing.T, c *kubetest.Cluster, file string, f *meshtest.File, m *store.Store) {
	docs, err := meshtest.Documents(file)
	require.NoError(t, err)
	k := &trial{c: c, file: f, says: refused[f.Name]}
	k.apply(t, docs)
	defer k.remove(t, m)
	want := k.tables(k.fromFiles())
	diff, seen := "", model.Revision(0)
	for end := time.Now().Add(patience); ; {
		if snap := m.Snapshot(); diff == "" || snap.Revision != seen {
			seen = snap.Revision
			if diff = compare(want, k.tables(k.fromCluster(snap))); diff == "" {
				return
			}
		}
		if time.Now().After(end) {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	require.Fail(t, "the cluster gives other resources than the files", diff)
}

// fromFiles returns the case's objects as files give them, without those that the API server refused.
func (k *trial) fromFiles() []model.Object {
	return slices.DeleteFunc(slices.Clone(k.file.Objects), func(o model.Object) bool { return !k.keys[o.Metadata().Key] })
}

// fromCluster returns the case's objects as the cluster gives them, with what its controllers made of them.
func (k *trial) fromCluster(snap *store.Snapshot) []model.Object {
	created := map[model.Key]time.Time{}
	for _, o := range k.file.Objects {
		created[o.Metadata().Key] = o.Metadata().Created
	}
	var out []model.Object
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			key := o.Metadata().Key
			slice, isSlice := o.(*model.EndpointSlice)
			made := isSlice && !k.sliced[slice.Namespace+"/"+slice.Service] && slice.Service != "kubernetes"
			if k.keys[key] || made || kind == model.KindNamespace || kind == model.KindNode {
				o = copied(o)
				o.Metadata().Created = created[key]
				out = append(out, o)
			}
		}
	}
	for _, o := range k.file.Objects { // ConfigMaps with CAs have a separate reader, which this test does not cover
		if s, ok := o.(*model.Secret); ok && k.keys[s.Key] {
			out = append(out, s)
		}
	}
	return out
}

// copied returns another object with the same content: objects of the store never change.
func copied(o model.Object) model.Object {
	c := reflect.New(reflect.TypeOf(o).Elem())
	c.Elem().Set(reflect.ValueOf(o).Elem())
	return c.Interface().(model.Object)
}

// tables returns the resources of the case's proxies.
func (k *trial) tables(objects []model.Object) map[string]map[resource.Type][]*resource.Encoded {
	out := map[string]map[resource.Type][]*resource.Encoded{}
	for _, p := range k.file.Proxies {
		out[p.Name], _ = engine.Compile(k.file.Mesh, objects, p.Model(k.file.Mesh.Domain))
	}
	return out
}

// compare returns the first differences.
func compare(want, got map[string]map[resource.Type][]*resource.Encoded) string {
	var diff []string
	for proxy := range want {
		for typ := range resource.NumTypes {
			a, b := byName(want[proxy][typ]), byName(got[proxy][typ])
			for name, e := range a {
				switch other := b[name]; {
				case other == nil:
					diff = append(diff, fmt.Sprintf("%s: no %s %s", proxy, typ, name))
				case !bytes.Equal(e.DeltaField(), other.DeltaField()):
					diff = append(diff, fmt.Sprintf("%s: %s %s differs:\nfiles   %s\ncluster %s", proxy, typ, name, e.DeltaField(), other.DeltaField()))
				}
			}
			for name := range b {
				if a[name] == nil {
					diff = append(diff, fmt.Sprintf("%s: more %s: %s", proxy, typ, name))
				}
			}
		}
	}
	slices.Sort(diff)
	return strings.Join(diff[:min(len(diff), 5)], "\n")
}

func byName(list []*resource.Encoded) map[string]*resource.Encoded {
	out := make(map[string]*resource.Encoded, len(list))
	for _, e := range list {
		out[e.Name] = e
	}
	return out
}
