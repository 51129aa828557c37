package engine

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// BenchmarkManyEndpoints replaces one endpoint of many, as a rolling update does: the events of a removed
// Pod, a new Pod and their EndpointSlice, from the events to the tables.
func BenchmarkManyEndpoints(b *testing.B) {
	for _, n := range sizes(500, 5000) {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			e := New(Options{Intake: store.NewIntake(), Recorder: noRecorder{}, Log: slog.New(slog.DiscardHandler)})
			e.publisher = noRecorder{}
			d := newDeployment(n)
			e.batch(d.start())
			p := proxy("web", "ns0")
			p.Identity = true
			e.bind(&binding{proxy: p}, make(chan []*table.Table, 1))
			b.ReportAllocs()
			for b.Loop() {
				e.batch(d.replace())
			}
		})
	}
}

// deployment has the Pods of a service, with sidecars, 100 in each EndpointSlice.
type deployment struct {
	pods []int // numbers of Pods, by slice and member
	next int
}

const podsOfSlice = 100

func newDeployment(n int) *deployment {
	d := &deployment{next: n}
	for i := range n {
		d.pods = append(d.pods, i)
	}
	return d
}

func (d *deployment) start() []store.Event {
	service := benchService(0, "1")
	s := *service.Object.(*model.Service)
	s.Selector = map[string]string{"app": "service-0"}
	events := []store.Event{{Key: s.Key, Object: &s}}
	for _, n := range d.pods {
		events = append(events, podEvent(n))
	}
	for i := 0; i < len(d.pods); i += podsOfSlice {
		events = append(events, d.slice(i/podsOfSlice))
	}
	return events
}

// replace replaces one Pod, each time in another slice.
func (d *deployment) replace() []store.Event {
	at := d.next * 7919 % len(d.pods)
	gone := podKey(d.pods[at])
	d.pods[at] = d.next
	d.next++
	return []store.Event{{Key: gone}, podEvent(d.pods[at]), d.slice(at / podsOfSlice)}
}

func podKey(n int) model.Key {
	return model.Key{Kind: model.KindPod, Namespace: "ns0", Name: fmt.Sprintf("service-0-%d", n)}
}

// podAddress spreads addresses, as a cluster does.
func podAddress(n int) string {
	at := n * 7919 % (1 << 24)
	return fmt.Sprintf("10.%d.%d.%d", at>>16, at>>8&255, at&255)
}

func podEvent(n int) store.Event {
	w := &model.Workload{
		Meta:  model.Meta{Key: podKey(n), ResourceVersion: "1", Labels: map[string]string{"app": "service-0", "version": "v1", "pod-template-hash": "5d8f9c", model.LabelTLSMode: model.TLSModeLabelIstio}},
		Owner: "service-0", Addresses: []string{podAddress(n)}, ServiceAccount: "service-0", Node: fmt.Sprintf("node-%d", n%20), Ready: true,
	}
	return store.Event{Key: w.Key, Object: w}
}

func (d *deployment) slice(i int) store.Event {
	s := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "ns0", Name: fmt.Sprintf("service-0-%d", i)}, ResourceVersion: fmt.Sprint(d.next)},
		Service: "service-0", Ports: []model.SlicePort{{Name: "http", Number: 8080}}, PodsListed: true,
	}
	for _, n := range d.pods[i*podsOfSlice : min(len(d.pods), (i+1)*podsOfSlice)] {
		s.Members = append(s.Members, model.SliceEndpoint{Addresses: []string{podAddress(n)}, Ready: true, Serving: true, Pod: podKey(n).Name})
	}
	return store.Event{Key: s.Key, Object: s}
}
