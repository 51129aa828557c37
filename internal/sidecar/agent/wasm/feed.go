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
)

// feed keeps plugins as the control plane has them. One goroutine, Run's, uses it.
type feed struct {
	keeper   *ModuleCache
	versions map[string]string   // of the plugins that are served as the control plane has them
	fetching map[string]*attempt // to serve plugins: what has not ended, or was not taken over yet
	ended    chan struct{}       // holds one token where an attempt has ended
	failed   map[string]*failure // plugins that could not be served, until they can or are others
	wait     time.Duration       // before they are tried again
	patience time.Duration       // that the answer to a response waits for its modules
	told     bool                // that the control plane is away
}

// Between two streams, and between attempts to fetch what failed.
const (
	againFirst  = 100 * time.Millisecond
	againMost   = 5 * time.Second
	fetchFirst  = 5 * time.Second
	fetchMost   = 5 * time.Minute
	expireEvery = time.Hour
)

// fetchPatience is how long the control plane, which sends the next plugins when the last ones are answered, waits
// for modules that are being fetched.
const fetchPatience = 2 * time.Second

// errAgain ends a stream that is to be opened again: what was refused on it is to be taken back, or
// the other way round.
var errAgain = errors.New("again")

func (f *feed) run(ctx context.Context) {
	defer f.dropAll()
	wait := againFirst
	for ctx.Err() == nil {
		received, err := f.stream(ctx)
		if received {
			wait = againFirst
		}
		if ctx.Err() == nil && err != errAgain && !f.told {
			f.told = true
			f.keeper.Log.Warn("no plugins come from the control plane; those that are known stay", "plugins", len(f.versions), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, againMost)
	}
}

// stream takes plugins until the stream breaks; received tells whether there were any.
func (f *feed) stream(ctx context.Context) (received bool, err error) {
	conn, err := f.keeper.Dial()
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
	first := &discoveryv3.DeltaDiscoveryRequest{Node: f.keeper.Node, TypeUrl: TypeURL, InitialResourceVersions: f.versions}
	if err := stream.Send(first); err != nil {
		return false, err
	}
	responses := make(chan *discoveryv3.DeltaDiscoveryResponse)
	var broken error // of the reader, once responses is closed
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
				return received, errAgain // what was refused comes again, to be answered anew
			}
		case <-f.keeper.again:
			f.forgetRefused()
			return received, errAgain
		case now := <-expire.C:
			f.keeper.Cache.Expire(now)
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

// retryIn is how long nothing is to be tried again.
func (f *feed) retryIn() time.Duration {
	if len(f.failed) == 0 {
		return fetchMost
	}
	return max(f.wait, fetchFirst)
}

// take takes a response over, and gives the ACK, or the NACK that names the plugins that could not
// be.
func (f *feed) take(ctx context.Context, r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	if f.told {
		f.told = false
		f.keeper.Log.Info("plugins come from the control plane again")
	}
	for _, name := range r.RemovedResources {
		f.drop(name)
		f.keeper.serve(name, nil)
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

// forgetRefused has the control plane send again what Envoy refused, to be told so.
func (f *feed) forgetRefused() {
	maps.DeleteFunc(f.versions, func(name, version string) bool { return f.keeper.refusalOf(name, version) != "" })
}
