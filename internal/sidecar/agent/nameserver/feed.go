package nameserver

import (
	"context"
	"log/slog"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/xds/nametable"
)

// Feed keeps a table up to date by a stream from the control plane. Only Run's goroutine uses it.
type Feed struct {
	Dial  func() (*grpc.ClientConn, error)
	Node  *corev3.Node
	Table *Table
	Log   *slog.Logger

	versions map[string]string // of the resources in the table, one for each host
	logged   bool              // the log has reported the lost connection
}

// Backoff between two streams.
const (
	againFirst = 100 * time.Millisecond
	againMost  = 5 * time.Second
)

// Run works until ctx ends. Without the control plane the table does not change.
func (f *Feed) Run(ctx context.Context) {
	f.versions = map[string]string{}
	wait := againFirst
	for ctx.Err() == nil {
		received, err := f.stream(ctx)
		if received {
			wait = againFirst
		}
		if ctx.Err() == nil && !f.logged {
			f.logged = true
			f.Log.Warn("no names from the control plane; the known ones stay", "names", f.Table.Len(), "error", err)
		}
		_ = clock.Sleep(ctx, wait)
		wait = min(2*wait, againMost)
	}
}

// stream applies names until the stream breaks. received reports whether there were any.
func (f *Feed) stream(ctx context.Context) (received bool, err error) {
	conn, err := f.Dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	first := &discoveryv3.DeltaDiscoveryRequest{Node: f.Node, TypeUrl: nametable.TypeURL, InitialResourceVersions: f.versions}
	if err := stream.Send(first); err != nil {
		return false, err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return received, err
		}
		received = true
		if err := stream.Send(f.take(response)); err != nil {
			return received, err
		}
	}
}

// take applies a response to the table. It returns the ACK, or a NACK if a resource is invalid.
func (f *Feed) take(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: nametable.TypeURL, ResponseNonce: r.Nonce}
	var all []nametable.Entry
	for _, res := range r.Resources {
		entries, err := nametable.Decode(res.GetResource().GetValue())
		if err != nil {
			out.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: res.Name + ": " + err.Error()}
			return out
		}
		all = append(all, entries...)
	}
	for _, res := range r.Resources {
		f.versions[res.Name] = res.Version
	}
	for _, name := range r.RemovedResources {
		delete(f.versions, name)
	}
	f.Table.Update(all, r.RemovedResources)
	if f.logged {
		f.logged = false
		f.Log.Info("names come from the control plane again", "names", f.Table.Len())
	}
	return out
}
