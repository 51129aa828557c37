// Package bootstrappatch asks the control plane what EnvoyFilters change of an Envoy's bootstrap, before
// that starts, and tells when they change something else afterwards: it counts from the next start
// on.
package bootstrappatch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

const typeURL = "type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap"

// Patch is what one EnvoyFilter changes.
type Patch struct {
	Name   string // see agentapi.BootstrapPatchName
	Change *bootstrapv3.Bootstrap
}

// Stream is the stream that amendments come by. Ask, Settle and then Watch are called by one goroutine
// after the other; Drop by any.
type Stream struct {
	dial func(context.Context) (*grpc.ClientConn, error)
	node *corev3.Node
	log  *slog.Logger

	first    *discoveryv3.DeltaDiscoveryResponse
	versions map[string]string // what the control plane has, but for what is refused, by name
	used     map[string]string // what Envoy's bootstrap has
	told     bool              // that it should have something else

	mu      sync.Mutex // guards what follows
	refused map[string]refusal
	open    *stream
}

type refusal struct{ version, message string }

// stream is one connection with one stream.
type stream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

func (s *stream) close() {
	s.cancel()
	_ = s.conn.Close()
}

// Between two streams.
const (
	againFirst = 20 * time.Millisecond
	againMost  = 5 * time.Second
)

// Ask waits for what is to be amended, in order, as long as ctx lets it. Settle or Close must be
// called where it gives a Talk.
func Ask(ctx context.Context, dial func(context.Context) (*grpc.ClientConn, error), node *corev3.Node, log *slog.Logger) (*Stream, []Patch, error) {
	t := &Stream{dial: dial, node: node, log: log, versions: map[string]string{}, used: map[string]string{}, refused: map[string]refusal{}}
	wait := againFirst
	for {
		err := t.connect(ctx)
		if err == nil {
			if t.first, err = t.open.Recv(); err == nil {
				break
			}
			t.open.close()
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
	}
	all, unreadable := read(t.first)
	if len(unreadable) > 0 {
		t.refuse(unreadable)
	}
	return t, all, nil
}

// connect opens a stream, and asks. Until the first answer is there it ends with ctx.
func (t *Stream) connect(ctx context.Context) error {
	conn, err := t.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: t.node, TypeUrl: typeURL, InitialResourceVersions: t.versions})
	}
	open := &stream{s, conn, cancel}
	if err != nil {
		open.close()
		return err
	}
	t.mu.Lock()
	t.open = open
	t.mu.Unlock()
	return nil
}

// read gives the amendments of a response, in order, and those that cannot be read.
func read(r *discoveryv3.DeltaDiscoveryResponse) (all []Patch, unreadable map[string]string) {
	unreadable = map[string]string{}
	for _, res := range r.Resources {
		a := Patch{Name: res.Name, Change: &bootstrapv3.Bootstrap{}}
		if err := res.GetResource().UnmarshalTo(a.Change); err != nil {
			unreadable[res.Name] = err.Error()
			continue
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Patch) int { return strings.Compare(a.Name, b.Name) })
	return all, unreadable
}

// refuse notes what of the first answer is refused, and why.
func (t *Stream) refuse(why map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, res := range t.first.Resources {
		if text, no := why[res.Name]; no {
			t.refused[res.Name] = refusal{res.Version, text}
		}
	}
}

// Settle answers what was asked for: some of it is refused, the rest is used. Where there was nothing,
// nothing is left to be watched, and it gives false.
func (t *Stream) Settle(refused map[string]string) (watch bool) {
	t.refuse(refused)
	if len(t.first.Resources) == 0 {
		t.Close()
		return false
	}
	if err := t.open.Send(t.take(t.first)); err != nil {
		t.log.Debug("the bootstrap's amendments are not answered yet", "error", err)
	}
	maps.Copy(t.used, t.versions)
	return true
}

// Close ends a Talk that is not watched; nil is none.
func (t *Stream) Close() {
	if t != nil {
		t.open.close()
	}
}

// take notes what the control plane has, and gives the ACK, or the NACK with what is refused.
func (t *Stream) take(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	var texts []string
	for _, res := range r.Resources {
		delete(t.versions, res.Name)
		if no := t.refused[res.Name]; no.version == res.Version {
			texts = append(texts, fmt.Sprintf("%s: %s", res.Name, no.message))
			continue
		}
		delete(t.refused, res.Name)
		t.versions[res.Name] = res.Version
	}
	for _, name := range r.RemovedResources {
		delete(t.versions, name)
		delete(t.refused, name)
	}
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.Nonce}
	if len(texts) > 0 {
		out.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: strings.Join(texts, "; ")}
	}
	return out
}

// Drop says that nothing of what was used is used any more: Envoy did not start with it.
func (t *Stream) Drop(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, res := range t.first.Resources {
		if _, no := t.refused[res.Name]; !no {
			t.refused[res.Name] = refusal{res.Version, why}
			delete(t.versions, res.Name)
			delete(t.used, res.Name)
		}
	}
	t.open.cancel() // the next stream gets them once more, to be refused
}

// Watch tells of changes until ctx ends.
func (t *Stream) Watch(ctx context.Context) {
	wait := againFirst
	for {
		if t.follow(ctx) {
			wait = againFirst
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			wait = min(2*wait, againMost)
			if t.connect(ctx) == nil {
				break
			}
		}
	}
}

// follow takes what comes by the open stream; it tells whether there was anything.
func (t *Stream) follow(ctx context.Context) (received bool) {
	s := t.open
	defer s.close()
	defer context.AfterFunc(ctx, s.cancel)()
	for {
		r, err := s.Recv()
		if err != nil {
			return received
		}
		received = true
		if s.Send(t.take(r)) != nil {
			return received
		}
		t.compare()
	}
}

// compare tells whether Envoy should have another bootstrap.
func (t *Stream) compare() {
	t.mu.Lock()
	defer t.mu.Unlock()
	differs := !maps.Equal(t.used, t.versions)
	switch {
	case differs == t.told:
	case differs:
		t.log.Warn("EnvoyFilters change the bootstrap in another way than when Envoy was started: that counts once the sidecar starts again", "filters", t.differing())
	default:
		t.log.Info("the bootstrap is again what EnvoyFilters make of it")
	}
	t.told = differs
}

// differing are the EnvoyFilters that came, changed or went; mu is held.
func (t *Stream) differing() []string {
	var out []string
	for _, m := range []map[string]string{t.used, t.versions} {
		for name := range m {
			if f := agentapi.BootstrapPatchFilter(name); t.used[name] != t.versions[name] && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	slices.Sort(out)
	return out
}
