package wasm

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// feed receives the control plane's plugins. Only Run's goroutine uses it.
type feed struct {
	cache    *ModuleCache
	versions map[string]string   // of plugins that are served in the control plane's version
	fetching map[string]*attempt // attempts that have not ended, or not been collected
	ended    chan struct{}       // holds one token after the end of an attempt
	failed   map[string]*failure // plugins that could not be served, until they are or change
	wait     time.Duration       // until the next retry
	patience time.Duration       // how long the answer to a response waits for its modules
	logged   bool                // the log has reported the lost connection
}

// Intervals between two streams, and between retries of failed fetches.
const (
	againFirst  = 100 * time.Millisecond
	againMost   = 5 * time.Second
	fetchFirst  = 5 * time.Second
	fetchMost   = 5 * time.Minute
	expireEvery = time.Hour
)

// fetchPatience is how long the ACK of a response waits for its modules. The control plane sends the next plugins after
// the ACK.
const fetchPatience = 2 * time.Second

// errAgain ends a stream that must be opened again, so that the control plane sends plugins whose answer changes.
var errAgain = errors.New("again")

func (f *feed) run(ctx context.Context) {
	defer f.dropAll()
	wait := againFirst
	for ctx.Err() == nil {
		received, err := f.stream(ctx)
		if received {
			wait = againFirst
		}
		if ctx.Err() == nil && err != errAgain && !f.logged {
			f.logged = true
			f.cache.Log.Warn("no plugins from the control plane; the known ones stay", "plugins", len(f.versions), "error", err)
		}
		_ = clock.Sleep(ctx, wait)
		wait = min(2*wait, againMost)
	}
}

// stream applies plugins until the stream breaks. received reports whether there were any.
func (f *feed) stream(ctx context.Context) (received bool, err error) {
	conn, err := f.cache.Dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	first := &discoveryv3.DeltaDiscoveryRequest{Node: f.cache.Node, TypeUrl: TypeURL, InitialResourceVersions: f.versions}
	if err := stream.Send(first); err != nil {
		return false, err
	}
	responses := make(chan *discoveryv3.DeltaDiscoveryResponse)
	var broken error // set before responses is closed
	reading.Go(func() {
		defer close(responses)
		for {
			var r *discoveryv3.DeltaDiscoveryResponse
			if r, broken = stream.Recv(); broken != nil {
				return
			}
			select {
			case responses <- r:
			case <-ctx.Done():
				broken = ctx.Err()
				return
			}
		}
	})
	return f.work(ctx, responses, stream.Send, func() error { return broken })
}

func (f *feed) work(ctx context.Context, responses <-chan *discoveryv3.DeltaDiscoveryResponse, send func(*discoveryv3.DeltaDiscoveryRequest) error, broken func() error) (received bool, err error) {
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	retry := time.NewTimer(f.retryIn())
	defer retry.Stop()
	for {
		var r *discoveryv3.DeltaDiscoveryResponse
		ok := true
		select {
		case r, ok = <-responses:
		case <-retry.C:
			f.retry(ctx)
		case <-f.ended:
			if f.collect() {
				return received, errAgain // the control plane sends failed plugins again, for a new answer
			}
		case <-f.cache.again:
			f.forgetRefused()
			return received, errAgain
		case now := <-expire.C:
			f.cache.Cache.Expire(now)
		}
		if !ok {
			return received, broken()
		}
		if r != nil {
			received, f.wait = true, fetchFirst
			if err := send(f.take(ctx, r)); err != nil {
				return received, err
			}
		}
		retry.Reset(f.retryIn())
	}
}

// retryIn returns the time until the next retry.
func (f *feed) retryIn() time.Duration {
	if len(f.failed) == 0 {
		return fetchMost
	}
	return max(f.wait, fetchFirst)
}

// take applies a response. It returns the ACK, or the NACK with the plugins that failed.
func (f *feed) take(ctx context.Context, r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	if f.logged {
		f.logged = false
		f.cache.Log.Info("plugins come from the control plane again")
	}
	for _, name := range r.RemovedResources {
		f.drop(name)
		f.cache.serve(name, nil)
		delete(f.versions, name)
	}
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: TypeURL, ResponseNonce: r.Nonce}
	var texts []string
	for i, err := range f.putAll(ctx, r.Resources) {
		if err != nil {
			texts = append(texts, r.Resources[i].Name+": "+err.Error())
		}
	}
	if len(texts) > 0 {
		out.ErrorDetail = &statuspb.Status{Code: int32(codes.Unavailable), Message: strings.Join(texts, "; ")}
	}
	return out
}

// forgetRefused makes the control plane send again the plugins that Envoy refused, so that the agent can NACK them.
func (f *feed) forgetRefused() {
	maps.DeleteFunc(f.versions, func(name, version string) bool { return f.cache.refusalOf(name, version) != "" })
}
