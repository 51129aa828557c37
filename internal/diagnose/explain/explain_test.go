package explain

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

const reviews = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http: [{route: [{destination: {host: reviews}}]}]
  tcp: [{route: [{destination: {host: ledger}}]}]`

func decode(t *testing.T, text string) model.Object {
	t.Helper()
	o, problems := config.Decoder{}.FromYAML([]byte(text))
	require.Empty(t, problems)
	return o
}

func TestContentIsTheSameFromEverySource(t *testing.T) {
	file := decode(t, reviews)
	server := decode(t, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: reviews
  namespace: shop
  resourceVersion: "81"
  generation: 3
  creationTimestamp: "2026-01-02T03:04:05Z"
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec:
  tcp: [{route: [{destination: {host: ledger}}]}]
  http: [{route: [{destination: {host: reviews}}]}]
  hosts: [reviews]`)
	server.Metadata().ResourceVersion, server.Metadata().Origin = "81", "kubernetes"
	require.NotEmpty(t, Content(file))
	require.Equal(t, Content(file), Content(server))
	require.NotEqual(t, Content(file), Content(decode(t, reviews+"\n  exportTo: [.]")))
}

func TestInForce(t *testing.T) {
	o := decode(t, reviews)
	o.Metadata().ResourceVersion = "hash"
	require.True(t, InForce(o, &Explanation{Origin: "mesh/a.yaml:1", ResourceVersion: "hash", Content: Content(o)}))
	require.False(t, InForce(o, &Explanation{Origin: "mesh/a.yaml:1", ResourceVersion: "older", Content: Content(o)}), "files differ in their whole content")
	require.True(t, InForce(o, &Explanation{Origin: "kubernetes", ResourceVersion: "81", Content: Content(o)}))
	require.False(t, InForce(o, &Explanation{Origin: "kubernetes", ResourceVersion: "81", Content: "older"}))

	const svc = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec: {selector: {app: a}, ports: [{name: http, port: 80%s}]%s}"
	written := decode(t, fmt.Sprintf(svc, "", ""))
	filled := decode(t, fmt.Sprintf(svc, ", targetPort: 80, protocol: TCP", ", clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], type: ClusterIP"))
	require.Equal(t, Content(written), Content(filled), "an API server fills that in")
	require.NotEqual(t, Content(written), Content(decode(t, fmt.Sprintf(svc, ", targetPort: 81", ""))))
	require.NotEqual(t, Content(written), Content(decode(t, fmt.Sprintf(svc, "", ", clusterIP: None"))))
}

// wholeWorld is a store with one object, its change, and proxies with fixed states.
type wholeWorld struct {
	Explainer
	distribution.Proxies // what the test does not ask about
	store                *store.Store
	log                  *changelog.Log
	places               []distribution.ProxySyncStatus
	asked                *distribution.Query
	left                 []distribution.Disconnected
	refusals             []*distribution.Refusal
}

func (w *wholeWorld) Refusals() []*distribution.Refusal { return w.refusals }

func (w *wholeWorld) Disconnected() []distribution.Disconnected { return w.left }

func (w *wholeWorld) Distribution(q *distribution.Query) []distribution.ProxySyncStatus {
	w.asked = q
	return w.places
}

func newWorld() *wholeWorld {
	w := &wholeWorld{store: store.New(), log: changelog.New(4, slog.New(slog.DiscardHandler), changelog.NewMetrics())}
	w.Explainer = Explainer{Snapshot: w.store.Snapshot, Changes: w.log, Proxies: w}
	return w
}

// put stores or removes an object.
func (w *wholeWorld) put(key model.Key, o model.Object) model.Revision {
	snap, _ := w.store.Apply([]store.Event{{Key: key, Object: o, Observed: time.Now()}})
	return snap.Revision
}

// begin begins the change of an object.
func (w *wholeWorld) begin(rev model.Revision, o changelog.ChangedObject) {
	w.log.Begin(rev, []changelog.ChangedObject{o}, time.Now())
}

func TestObjectOnItsWay(t *testing.T) {
	w := newWorld()
	o := decode(t, reviews)
	key := o.Metadata().Key
	o.Metadata().ResourceVersion = "1"
	_, err := w.Object(key, Ask{Max: 9})
	require.ErrorContains(t, err, "VirtualService/shop/reviews: not found")

	rev := w.put(key, o)
	e, err := w.Object(key, Ask{Max: 9})
	require.NoError(t, err)
	require.Equal(t, changelog.Building, e.State, "it is in the store, and nothing else is known")
	require.Zero(t, e.Revision)

	w.begin(rev, changelog.ChangedObject{Key: key, Operation: changelog.Created, ResourceVersion: "1"})
	e, _ = w.Object(key, Ask{Max: 9})
	require.Equal(t, changelog.Building, e.State)
	require.Equal(t, rev, e.Revision)
	require.Nil(t, w.asked, "streams do not know of it yet")

	w.log.Published(rev, 3, time.Now())
	w.places = []distribution.ProxySyncStatus{
		{Name: "a", Position: distribution.StateACKed}, {Name: "b", Position: distribution.StateBehind},
		{Name: "c", Position: distribution.StateDisconnected}, {Name: "d", Position: distribution.StateRefused},
		{Name: "e", Position: distribution.StateNotConcerned}, {Name: "f", Position: distribution.StateACKed, Superseded: true},
	}
	e, _ = w.Object(key, Ask{Max: 2})
	require.Equal(t, changelog.Distributing, e.State)
	require.Equal(t, Counts{Acked: 2, Superseded: 1, Behind: 1, Refused: 1, Disconnected: 1, NotConcerned: 1}, e.Counts)
	require.InDelta(t, 50, e.Counts.Percent(), 0)
	require.Len(t, e.Proxies, 2)
	require.Equal(t, 1, e.LeftOut)
	e, _ = w.Object(key, Ask{Max: 9, All: true})
	require.Equal(t, "d", e.Proxies[0].Name, "the worst first")
	require.Len(t, e.Proxies, 6)

	newer := decode(t, reviews)
	newer.Metadata().ResourceVersion = "2"
	w.put(key, newer)
	e, _ = w.Object(key, Ask{Max: 9})
	require.Equal(t, changelog.Building, e.State, "the older change is not what it is about any more")
	require.Zero(t, e.Counts)
}

// TestProxiesOfDeletedPodsDoNotCount checks that proxies of a finished rollout do not count as
// disconnected.
func TestProxiesOfDeletedPodsDoNotCount(t *testing.T) {
	w := newWorld()
	o := decode(t, reviews)
	o.Metadata().ResourceVersion = "1"
	key := o.Metadata().Key
	pod := func(name string) model.Key { return model.Key{Kind: model.KindPod, Namespace: "shop", Name: name} }
	w.begin(1, changelog.ChangedObject{Key: pod("deleted"), Operation: changelog.Deleted})
	w.put(pod("cut-off"), &model.Workload{Meta: model.Meta{Key: pod("cut-off")}, Addresses: []string{"10.0.0.2", "fd00::2"}})
	w.put(pod("replaced"), &model.Workload{Meta: model.Meta{Key: pod("replaced")}, Addresses: []string{"10.0.0.9"}}) // a StatefulSet's
	w.put(pod("ending"), &model.Workload{Meta: model.Meta{Key: pod("ending")}, Addresses: []string{"10.0.0.7"}, Terminating: true})
	entry := model.Key{Kind: model.KindWorkloadEntry, Namespace: "shop", Name: "vm"}
	w.put(entry, &model.Workload{Meta: model.Meta{Key: entry}, Addresses: []string{"10.0.0.6"}})
	slice := model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web"}
	w.put(slice, &model.EndpointSlice{Meta: model.Meta{Key: slice}, Members: []model.SliceEndpoint{{Addresses: []string{"10.0.0.4"}, Pod: "new"}}})
	w.log.Removed([]changelog.RemovedEndpoint{{Revision: 2, Address: "10.0.0.3"}})
	rev := w.put(key, o)
	w.begin(rev, changelog.ChangedObject{Key: key, Operation: changelog.Created, ResourceVersion: "1"})
	w.log.Published(rev, 0, time.Now())
	for i, name := range []string{"deleted", "cut-off", "endpoint-gone", "of-no-pod", "replaced", "of-entry", "ending"} {
		w.left = append(w.left, distribution.Disconnected{ID: name, Name: name, Namespace: "shop", IPs: []string{fmt.Sprint("10.0.0.", i+1)}})
		w.places = append(w.places, distribution.ProxySyncStatus{ID: name, Name: name, Namespace: "shop", Position: distribution.StateDisconnected})
	}
	e, err := w.Object(key, Ask{Max: 9})
	require.NoError(t, err)
	require.Equal(t, 2, e.Counts.Disconnected)
	require.Equal(t, "cut-off", e.Proxies[0].Name)
	require.Equal(t, "of-entry", e.Proxies[1].Name)
}

// TestDisconnectedProxiesWithoutPods checks that in configuration without Pods, a proxy remains until its endpoint is removed.
func TestDisconnectedProxiesWithoutPods(t *testing.T) {
	w := newWorld()
	w.log.Removed([]changelog.RemovedEndpoint{{Revision: 2, Address: "10.0.0.2"}})
	w.left = []distribution.Disconnected{{ID: "of-no-pod", IPs: []string{"10.0.0.1"}}, {ID: "endpoint-gone", IPs: []string{"10.0.0.2"}}}
	left := w.Explainer.Disconnected()
	require.Len(t, left, 1)
	require.Equal(t, "of-no-pod", left[0].ID)
}

func TestDeletedObject(t *testing.T) {
	w := newWorld()
	o := decode(t, reviews)
	key := o.Metadata().Key
	o.Metadata().ResourceVersion = "1"
	w.begin(w.put(key, o), changelog.ChangedObject{Key: key, Operation: changelog.Created, ResourceVersion: "1"})
	rev := w.put(key, nil)
	e, err := w.Object(key, Ask{})
	require.NoError(t, err)
	require.Equal(t, changelog.Building, e.State)
	w.begin(rev, changelog.ChangedObject{Key: key, Operation: changelog.Deleted})
	w.log.Published(rev, 0, time.Now())
	e, _ = w.Object(key, Ask{})
	require.False(t, e.Exists)
	require.Equal(t, changelog.Deleted, e.Operation)
	require.Equal(t, changelog.Distributed, e.State)
	require.InDelta(t, 100, e.Counts.Percent(), 0)
}

// TestExplanationHasProblems checks that an explanation has the object's problems, also if no version is in force.
func TestExplanationHasProblems(t *testing.T) {
	w := newWorld()
	o := decode(t, reviews)
	key := o.Metadata().Key
	odd := key
	w.Problems = func(k model.Key) problem.List {
		if k == odd {
			return problem.List{{Severity: problem.SeverityWarning, File: "a.yaml", Line: 3, Object: k, Field: "spec.http", Message: "is odd"}}
		}
		return nil
	}
	_, err := w.Object(key, Ask{})
	require.ErrorContains(t, err, "VirtualService/shop/reviews: no version is in force: warning: spec.http: is odd")
	w.put(key, o)
	e, err := w.Object(key, Ask{})
	require.NoError(t, err)
	require.Equal(t, []string{"warning: spec.http: is odd"}, e.Problems)
	require.Nil(t, e.Error, "a warning leaves the newest version in force")
	key.Name = "other"
	_, err = w.Object(key, Ask{})
	require.ErrorContains(t, err, "VirtualService/shop/other: not found")
}

// TestResourcesOfAnObject checks what of a proxy that connects after an object's last change is made from the object.
func TestResourcesOfAnObject(t *testing.T) {
	w := compile(t, reviews,
		"apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: other-reviews, namespace: shop}\nspec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: ledger, namespace: shop}\nspec: {clusterIP: 10.0.0.9, ports: [{name: tcp, port: 99}]}",
		`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-1, namespace: shop, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.1]}]
ports: [{name: http, port: 8080}]`,
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}\nspec: {host: reviews, trafficPolicy: {loadBalancer: {simple: RANDOM}}}",
	)
	const host, cluster = "80/reviews.shop.svc.cluster.local:80", "outbound|80||reviews.shop.svc.cluster.local"
	for object, want := range map[string][]string{
		"VirtualService/shop/reviews":  {"RDS 80", "VHDS " + host},
		"EndpointSlice/shop/reviews-1": {"EDS " + cluster},
		"DestinationRule/shop/reviews": {"CDS " + cluster},
		"Sidecar/shop/default":         nil,
	} {
		require.Equal(t, want, w.concerns(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop"}, keyOf(object)), object)
	}
	got := w.concerns(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop"}, keyOf("Service/shop/reviews"))
	for _, want := range []string{"CDS " + cluster, "EDS " + cluster, "RDS 80", "VHDS " + host} {
		require.Contains(t, got, want)
	}
	for _, name := range got {
		require.NotContains(t, name, "other-reviews")
		require.NotContains(t, name, "ledger")
	}
}
