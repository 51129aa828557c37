// Package bootstrappatch requests the patches that EnvoyFilters make to an Envoy's bootstrap, before Envoy starts.
// Afterwards it logs when the patches change; the change applies at the next start.
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

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

const typeURL = "type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap"

// Patch is the patch of one EnvoyFilter.
type Patch struct {
	Name   string // see agentapi.BootstrapPatchName
	Change *bootstrapv3.Bootstrap
}

// Stream delivers patches. One goroutine calls Ask, Settle and then Watch; any may call Drop.
type Stream struct {
	dial func(context.Context) (*grpc.ClientConn, error)
	node *corev3.Node
	log  *slog.Logger

	first    *discoveryv3.DeltaDiscoveryResponse
	versions map[string]string // by name; versions of the control plane's patches without refused ones
	used     map[string]string // by name; versions of the patches in Envoy's bootstrap
	logged   bool              // the log has reported that the two differ

	mu      sync.Mutex // guards the fields below
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

// Backoff between two streams.
const (
	againFirst = 20 * time.Millisecond
	againMost  = 5 * time.Second
)

// Ask waits for the patches, in order, until ctx ends. Call Settle or Close on the Stream that it returns.
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
		if clock.Sleep(ctx, wait) != nil {
			return nil, nil, err
		}
		wait = min(2*wait, time.Second)
	}
	all, unreadable := read(t.first)
	if len(unreadable) > 0 {
		t.refuse(unreadable)
	}
	return t, all, nil
}

// connect opens a stream and sends the request. Before the first answer the stream ends with ctx.
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

// read decodes the patches of a response, in order, and returns the errors of invalid ones by name.
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

// refuse stores the errors of patches in the first response.
func (t *Stream) refuse(why map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, res := range t.first.Resources {
		if text, no := why[res.Name]; no {
			t.refused[res.Name] = refusal{res.Version, text}
		}
	}
}

// Settle answers the first response: the patches in refused are NACKed, the others ACKed. It returns false, and closes
// the stream, if there were no patches.
func (t *Stream) Settle(refused map[string]string) (watch bool) {
	t.refuse(refused)
	if len(t.first.Resources) == 0 {
		t.Close()
		return false
	}
	if err := t.open.Send(t.take(t.first)); err != nil {
		t.log.Debug("the bootstrap patches are not ACKed yet", "error", err)
	}
	maps.Copy(t.used, t.versions)
	return true
}

// Close closes a Stream without Watch. A nil Stream is allowed.
func (t *Stream) Close() {
	if t != nil {
		t.open.close()
	}
}

// take stores the versions of a response. It returns the ACK, or the NACK with the errors.
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

// Drop marks all used patches as refused, because Envoy did not start with them.
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
	t.open.cancel() // the control plane sends them on the next stream, which NACKs them
}

// Watch logs changes until ctx ends.
func (t *Stream) Watch(ctx context.Context) {
	wait := againFirst
	for {
		if t.follow(ctx) {
			wait = againFirst
		}
		for {
			if clock.Sleep(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, againMost)
			if t.connect(ctx) == nil {
				break
			}
		}
	}
}

// follow applies the responses of the open stream. It reports whether there were any.
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

// compare logs when the control plane's patches begin or cease to differ from Envoy's bootstrap.
func (t *Stream) compare() {
	t.mu.Lock()
	defer t.mu.Unlock()
	differs := !maps.Equal(t.used, t.versions)
	switch {
	case differs == t.logged:
	case differs:
		t.log.Warn("the EnvoyFilters that patch the bootstrap have changed: restart the sidecar to apply them", "filters", t.differing())
	default:
		t.log.Info("the bootstrap matches the EnvoyFilters again")
	}
	t.logged = differs
}

// differing returns the EnvoyFilters whose patches differ. mu is held.
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
