package kube

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/config"
)

// The heartbeat is one Lease of the root namespace. All control planes write their name and the time to it, and
// recognize their own writes among the events.
const (
	heartbeatName  = "moonsail-heartbeat"
	fieldManager   = "moonsail"
	beatTimeout    = 10 * time.Second
	maxBeatsUnseen = 64
)

// heartbeat measures the time of writes to the API server, and the time until a watch reports them. Its watch shares
// its connection with all other watches.
type heartbeat struct {
	identity string
	meter    Meter
	last     *atomic.Int64 // of the last received write, in Unix nanoseconds

	mu   sync.Mutex // guards sent
	sent map[string]time.Time
}

var heartbeatKind = config.Resource{Group: coordinationv1.GroupName, Kind: "Lease"}

// beat writes and watches the heartbeat until ctx ends.
func (s *Source) beat(ctx context.Context) {
	h := &heartbeat{identity: s.Identity, meter: s.Meter, last: &s.beaten, sent: map[string]time.Time{}}
	h.last.Store(time.Now().UnixNano())
	r := &resource{
		Resource: heartbeatKind, version: "v1", plural: "leases", example: &coordinationv1.Lease{},
		namespace: s.RootNamespace, field: "metadata.name=" + heartbeatName,
	}
	client, err := s.Client.rest(r)
	if err != nil {
		s.Log.Warn("the API server's delay is not measured", "error", err)
		return
	}
	lw, _ := s.Client.listWatch(r, func(error) {}) // fails only if rest fails
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { reflectInto(ctx, heartbeatName, lw, r.example, h) })
	s.keepBeating(ctx, h, client)
}

func (s *Source) keepBeating(ctx context.Context, h *heartbeat, client rest.Interface) {
	var errs logonce.Errors
	for clock.Sleep(ctx, jittered(s.Heartbeat)) == nil {
		err := h.write(ctx, client, s.RootNamespace)
		if ctx.Err() == nil && errs.First(err) {
			s.Log.Warn("the heartbeat cannot be written, so the API server's delay is not measured", "namespace", s.RootNamespace, "error", err)
		}
	}
}

// jittered returns d with jitter, so that control planes do not write at the same time.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

// write writes the name and the time into the Lease, and creates a missing one.
func (h *heartbeat) write(ctx context.Context, client rest.Interface, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	at := time.Now()
	body, err := json.Marshal(coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: heartbeatKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: heartbeatName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &h.identity, RenewTime: &metav1.MicroTime{Time: at}},
	})
	if err != nil {
		return err
	}
	h.note(metav1.NewMicroTime(at), at)
	err = client.Patch(types.ApplyYAMLPatchType).Namespace(namespace).Resource("leases").Name(heartbeatName).
		Param("force", "true").Param("fieldManager", fieldManager).Body(body).Do(ctx).Error()
	if err == nil {
		h.meter.APIDelay(DelayWrite, time.Since(at))
	}
	return err
}

// note stores a write. It drops writes without an event: a new watch reports only the newest.
func (h *heartbeat) note(beat metav1.MicroTime, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sent) >= maxBeatsUnseen {
		clear(h.sent)
	}
	h.sent[beatID(beat)] = at
}

// beatID is the time as the API server returns it, in microseconds.
func beatID(t metav1.MicroTime) string { return t.UTC().Format(metav1.RFC3339Micro) }

// Add implements cache.ReflectorStore.
func (h *heartbeat) Add(o any) error { return h.seen(o, time.Now()) }

// Update implements cache.ReflectorStore.
func (h *heartbeat) Update(o any) error { return h.seen(o, time.Now()) }

func (h *heartbeat) seen(o any, now time.Time) error {
	l, ok := o.(*coordinationv1.Lease)
	if !ok || l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != h.identity {
		return nil
	}
	id := beatID(*l.Spec.RenewTime)
	h.mu.Lock()
	at, sent := h.sent[id]
	delete(h.sent, id)
	h.mu.Unlock()
	if sent {
		h.last.Store(now.UnixNano())
		h.meter.APIDelay(DelayWatch, now.Sub(at))
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (h *heartbeat) Delete(any) error { return nil }

// Replace implements cache.ReflectorStore. A list contains no delays.
func (h *heartbeat) Replace([]any, string) error { return nil }

// Resync implements cache.ReflectorStore.
func (h *heartbeat) Resync() error { return nil }
