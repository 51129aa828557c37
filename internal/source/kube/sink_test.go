package kube

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/logtext"
)

// counts is a Meter that counts.
type counts struct {
	mu     sync.Mutex // guards all below
	events map[string]int
	delays map[Delay][]time.Duration
}

func newCounts() *counts {
	return &counts{events: map[string]int{}, delays: map[Delay][]time.Duration{}}
}

func (c *counts) Event(kind string, _ bool, event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[kind+" "+event]++
}

func (c *counts) APIDelay(of Delay, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delays[of] = append(c.delays[of], d)
}

func (c *counts) of(event string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[event]
}

func (c *counts) delay(of Delay) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delays[of]
}

// testSink is a sink without an API server.
func testSink(t *testing.T, kind model.Kind) (*sink, *store.Intake, *counts) {
	t.Helper()
	in, c := store.NewIntake(SourceName), newCounts()
	s := &Source{Intake: in, Meter: c, Log: slog.New(slog.DiscardHandler)}
	s.log.log, s.status.log = s.Log, s.Log
	for _, r := range append(builtin("istio-system", model.MeshConfigName), customs()...) {
		if r.Model == kind && r.Read {
			return s.sink(r), in, c
		}
	}
	require.Fail(t, "no such kind")
	return nil, nil, nil
}

func customs() []*resource {
	var out []*resource
	for _, k := range customKinds() {
		if k.Read {
			out = append(out, custom(k, k.Versions[0], "plural"))
		}
	}
	return out
}

func pod(name, version, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", ResourceVersion: version, Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"proxy.istio.io/config": "{}", "cni.example.org/status": "long"},
		},
		Status: corev1.PodStatus{PodIP: ip, Phase: corev1.PodRunning},
	}
}

// TestOtherVersionOfAKind checks that an object takes effect as another version of its kind describes it, although it was not
// changed meanwhile.
func TestOtherVersionOfAKind(t *testing.T) {
	k, in, _ := testSink(t, model.KindPod)
	s := store.New()
	require.NoError(t, k.Add(pod("a", "1", "10.0.0.1")))
	s.Apply(in.Take())
	k.become(k.resource)
	require.NoError(t, k.Update(pod("a", "1", "10.0.0.2")))
	snap, changes := s.Apply(in.Take())
	require.Len(t, changes, 1)
	require.Equal(t, []string{"10.0.0.2"}, snap.Get(changes[0].Key).(*model.Workload).Addresses)
}

func TestSinkTellsOnlyNews(t *testing.T) {
	k, in, c := testSink(t, model.KindPod)
	require.NoError(t, k.Add(pod("a", "1", "10.0.0.1")))
	events := in.Take()
	require.Len(t, events, 1)
	w := events[0].Object.(*model.Workload)
	require.Equal(t, []string{"10.0.0.1"}, w.Addresses)
	require.Empty(t, w.Annotations, "only the sidecar uses them")
	require.False(t, events[0].Observed.IsZero())

	require.NoError(t, k.Update(pod("a", "1", "10.0.0.1")))
	other := pod("a", "2", "10.0.0.1")
	other.Status.Message = "nothing that the mesh reads"
	other.Annotations["cni.example.org/status"] = "longer"
	require.NoError(t, k.Update(other))
	require.Empty(t, in.Take())
	require.Equal(t, 1, c.of("Pods updatesame"))

	require.NoError(t, k.Update(pod("a", "3", "10.0.0.2")))
	require.Len(t, in.Take(), 1)
	require.NoError(t, k.Delete(pod("a", "4", "10.0.0.2")))
	events = in.Take()
	require.Len(t, events, 1)
	require.Nil(t, events[0].Object)
	require.True(t, events[0].Urgent, "an endpoint is removed")
	require.NoError(t, k.Delete(pod("a", "4", "")), "removing an absent object is allowed")
	require.Empty(t, in.Take())
	require.Equal(t, []int{1, 1, 1}, []int{c.of("Pods add"), c.of("Pods update"), c.of("Pods delete")})
}

func TestSinkReplaces(t *testing.T) {
	k, in, _ := testSink(t, model.KindPod)
	require.NoError(t, k.Replace([]any{pod("a", "1", "10.0.0.1"), pod("b", "1", "10.0.0.2"), pod("c", "1", "10.0.0.3")}, "1"))
	require.Len(t, in.Take(), 3)
	// Without a watch, c changed and b was deleted; d is new; a is unchanged.
	entry, err := k.Transformer()(pod("c", "2", "10.0.0.9"))
	require.NoError(t, err)
	require.NoError(t, k.Replace([]any{pod("a", "1", "10.0.0.1"), entry, pod("d", "2", "10.0.0.4")}, "2"))
	var names []string
	for _, e := range in.Take() {
		name := e.Key.Name
		if e.Object == nil {
			name = "-" + name
		}
		names = append(names, name)
	}
	require.Equal(t, []string{"-b", "c", "d"}, names)
}

// TestEntriesAreKeyed checks what client-go's temporary stores need of decoded objects.
func TestEntriesAreKeyed(t *testing.T) {
	k, _, _ := testSink(t, model.KindPod)
	o, err := k.Transformer()(pod("a", "1", "10.0.0.1"))
	require.NoError(t, err)
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	require.NoError(t, err)
	require.Equal(t, "shop/a", name)
	again, err := k.Transformer()(o)
	require.NoError(t, err)
	require.Same(t, o, again)
}

func raw(t *testing.T, version, spec string) *rawObject {
	t.Helper()
	o := &rawObject{}
	require.NoError(t, json.Unmarshal([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"VirtualService",
		"metadata":{"name":"web","namespace":"shop","resourceVersion":"`+version+`"},"spec":`+spec+`}`), o))
	return o
}

func TestMistakesLeaveTheLastGoodState(t *testing.T) {
	k, in, _ := testSink(t, model.KindVirtualService)
	const good = `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`
	for name, bad := range map[string]struct{ spec, field string }{
		"a value that has no meaning": {`{"hosts":["web"],"http":[{"match":[{"uri":{"regex":"("}}],"route":[{"destination":{"host":"web"}}]}]}`, "spec.http[0].match[0].uri.regex"},
		"another type":                {`{"hosts":["web"],"http":[{"timeout":{"a":1},"route":[{"destination":{"host":"web"}}]}]}`, "spec.http[0].timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, k.Add(raw(t, name+"1", good)))
			in.Take()
			require.Empty(t, k.Problems())
			require.NoError(t, k.Update(raw(t, name+"2", bad.spec)))
			require.Empty(t, in.Take(), "the object stays in force")
			problems := k.Problems()
			require.Len(t, problems, 1)
			require.Equal(t, bad.field, problems[0].Field)
			require.Equal(t, "VirtualService/shop/web", problems[0].Object.String())

			require.NoError(t, k.Replace([]any{raw(t, name+"2", bad.spec)}, ""))
			require.Empty(t, in.Take(), "also if everything is listed again")
			require.NoError(t, k.Update(raw(t, name+"3", `{"hosts":["web"],"http":[{"timeout":"3s","route":[{"destination":{"host":"web"}}]}]}`)))
			require.Len(t, in.Take(), 1)
			require.Empty(t, k.Problems())
			require.NoError(t, k.Update(raw(t, name+"4", bad.spec)))
			require.NoError(t, k.Delete(raw(t, name+"5", bad.spec)))
			require.Empty(t, k.Problems(), "a removed object has no problems")
			require.Len(t, in.Take(), 1)
		})
	}
}

// TestSolvedProblemsAreLogged: a corrected or removed object ends its problems in the log.
func TestSolvedProblemsAreLogged(t *testing.T) {
	k, _, _ := testSink(t, model.KindVirtualService)
	var log logtext.Buffer
	k.problem = (&problemLog{slog.New(slog.NewTextHandler(&log, nil))}).problems
	const bad, good = `{"hosts":["web"],"http":[{"timeout":{"a":1}}]}`, `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`
	solved := func() int {
		return strings.Count(log.String(), `level=INFO msg="configuration problem solved" object=VirtualService/shop/web field=spec.http[0].timeout`)
	}
	require.NoError(t, k.Add(raw(t, "1", bad)))
	require.Contains(t, log.String(), `level=ERROR msg="configuration problem" object=VirtualService/shop/web field=spec.http[0].timeout`)
	require.NoError(t, k.Update(raw(t, "2", bad)))
	require.Zero(t, solved())
	require.NoError(t, k.Update(raw(t, "3", good)))
	require.Equal(t, 1, solved())
	require.NoError(t, k.Update(raw(t, "4", bad)))
	require.NoError(t, k.Delete(raw(t, "5", bad)))
	require.Equal(t, 2, solved())
	require.NoError(t, k.Add(raw(t, "6", bad)))
	require.NoError(t, k.Replace(nil, ""))
	require.Equal(t, 3, solved())
}

// TestNewerVersionsOfIstio checks that an unknown field is ignored, as in Istio.
func TestNewerVersionsOfIstio(t *testing.T) {
	k, in, _ := testSink(t, model.KindVirtualService)
	require.NoError(t, k.Add(raw(t, "1", `{"hosts":["web"],"later":true,"http":[{"route":[{"destination":{"host":"web"}}]}]}`)))
	require.Len(t, in.Take(), 1)
}

// TestKindsWithoutEffect checks that policies without effect are reported.
func TestKindsWithoutEffect(t *testing.T) {
	later := config.Resource{Group: "extensions.istio.io", Kind: "TrafficExtension", Custom: true}
	s := &Source{Intake: store.NewIntake(), Meter: newCounts(), Log: slog.New(slog.DiscardHandler)}
	s.log.log = s.Log
	k := s.sink(custom(later, "v1alpha1", "trafficextensions"))
	require.False(t, k.resource.Read, "choose another kind: this one has an effect now")
	require.NoError(t, k.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "deny", Namespace: "shop", ResourceVersion: "1"}}))
	problems := s.Problems()
	require.Len(t, problems, 1)
	require.Equal(t, problem.SeverityWarning, problems[0].Severity)
	require.Equal(t, "TrafficExtension/shop/deny", problems[0].Object.String())
	require.Contains(t, problems[0].Message, "no effect")
}

func TestPoolShares(t *testing.T) {
	k, in, _ := testSink(t, model.KindPod)
	require.NoError(t, k.Add(pod("a", "1", "10.0.0.1")))
	require.NoError(t, k.Add(pod("b", "1", "10.0.0.2")))
	other := pod("c", "1", "10.0.0.3")
	other.Labels["app"] = "other"
	require.NoError(t, k.Add(other))
	events := in.Take()
	labels := func(i int) map[string]string { return events[i].Object.Metadata().Labels }
	require.Equal(t, reflect.ValueOf(labels(0)).Pointer(), reflect.ValueOf(labels(1)).Pointer())
	require.Equal(t, map[string]string{"app": "other"}, labels(2))

	s, _, _ := testSink(t, model.KindService)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", ResourceVersion: "1", Annotations: map[string]string{
			"networking.istio.io/exportTo": ".", "example.org/owner": "alice",
		}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	e, err := s.decode(svc)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"networking.istio.io/exportTo": "."}, e.object.Metadata().Annotations)
}

// TestSlicesOfNoService checks that a slice without a service is not reported.
func TestSlicesOfNoService(t *testing.T) {
	k, in, _ := testSink(t, model.KindEndpointSlice)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "a", Namespace: "shop", ResourceVersion: "1"},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	require.NoError(t, k.Add(slice))
	require.Empty(t, in.Take())
	require.Empty(t, k.Problems())
	slice = slice.DeepCopy()
	slice.ResourceVersion, slice.Labels = "2", map[string]string{discoveryv1.LabelServiceName: "web"}
	require.NoError(t, k.Update(slice))
	require.Len(t, in.Take(), 1)
	slice = slice.DeepCopy()
	slice.ResourceVersion, slice.Labels = "3", nil
	require.NoError(t, k.Update(slice))
	events := in.Take()
	require.Len(t, events, 1)
	require.Nil(t, events[0].Object, "it has left its service")
}
