// Package deregister removes the endpoints of a workload that ends, and waits until every proxy has ACKed that. The
// contract with the control plane is in xds/agentapi.
package deregister

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

const (
	// defaultInterval is how often a drained workload repeats its deregistration until it ends. Without that, a
	// control plane that started later, or another replica, would send calls to it.
	defaultInterval = 5 * time.Second
	// retryInterval is the time between two attempts to reach the control plane.
	retryInterval = 100 * time.Millisecond
	// answerMargin is how long before the deadline the control plane answers, so that its answer arrives in time and
	// lists the proxies that lack the change.
	answerMargin = 200 * time.Millisecond
)

// Options of a Client.
type Options struct {
	Dial         func(...grpc.DialOption) (*grpc.ClientConn, error) // connects to ControlPlane with the first call
	ControlPlane string                                             // its address, for messages
	Node         string                                             // id of the Envoy node
	Instance     string                                             // name of this run of the sidecar
	Addresses    []string                                           // of the workload
	WasReady     func() bool                                        // a workload that was never ready has no endpoints
	Timeout      time.Duration                                      // for the answer; 0: do not deregister
	Interval     time.Duration                                      // between repetitions; 0: 5 s
	DrainTime    time.Duration                                      // of the drain that follows a failure, for messages
	Log          *slog.Logger
}

// Client deregisters one workload.
type Client struct {
	Options
	acked bool          // every proxy has ACKed; known when done is closed
	text  string        // the outcome, for logs and people; known when done is closed
	done  chan struct{} // closed when the outcome is known

	mu      sync.Mutex         // guards started, and orders Start before Close
	started bool               // the goroutine runs, or has ended
	ctx     context.Context    // of the goroutine; Close ends it
	cancel  context.CancelFunc // of ctx
	ended   sync.WaitGroup     // the goroutine
}

// New returns a Client. Close ends its goroutine.
func New(o Options) *Client {
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	c := &Client{Options: o, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start removes the workload's endpoints from the mesh. It runs once and does not wait. From then on the client repeats
// the deregistration until Close. After Close, Start does nothing.
func (c *Client) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.ctx.Err() != nil {
		return
	}
	c.started = true
	c.ended.Go(c.run)
}

// Wait returns the outcome of the deregistration: every proxy has ACKed it, or the timeout is over. known is false if
// Close came first.
func (c *Client) Wait() (acked bool, text string, known bool) {
	select {
	case <-c.done:
		return c.acked, c.text, true
	case <-c.ctx.Done():
		return false, "the outcome of the deregistration is unknown: the wait was interrupted", false
	}
}

// run deregisters once, then repeats that until Close.
func (c *Client) run() {
	c.acked, c.text = c.try(c.ctx)
	if c.acked {
		c.Log.Info(c.text)
	} else {
		c.Log.Warn(c.text)
	}
	close(c.done)
	if c.WasReady() && c.Timeout > 0 {
		c.reannounce(c.ctx)
	}
}

// Done is closed when the outcome is known.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the deregistration and its repetition, and waits for the goroutine.
func (c *Client) Close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.ended.Wait()
}

func (c *Client) try(ctx context.Context) (acked bool, text string) {
	start := time.Now()
	fallback := fmt.Sprintf("the workload drains for at least %s", c.DrainTime)
	switch {
	case !c.WasReady():
		return true, "not deregistered: the workload was never ready"
	case c.Timeout <= 0:
		return true, "not deregistered: --leave-timeout is 0"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := c.call(ctx)
	took := time.Since(start).Round(100 * time.Microsecond)
	switch {
	case err != nil:
		return false, fmt.Sprintf("deregistration failed after %s: control plane %s: %v; %s", took, c.ControlPlane, err, fallback)
	case answer.LackCount > 0:
		return false, fmt.Sprintf("deregistered: %s ACKed in %s, %d did not: %s; %s", proxies(answer.ACKed), took, answer.LackCount, lackingText(answer), fallback)
	}
	return true, fmt.Sprintf("deregistered: %s ACKed in %s", proxies(answer.ACKed), took)
}

func proxies(n int) string {
	if n == 1 {
		return "1 proxy"
	}
	return fmt.Sprintf("%d proxies", n)
}

// lackingText lists the proxies that may still call the workload.
func lackingText(r *agentapi.DeregisterResponse) string {
	var out []string
	for _, p := range r.Lacking {
		text := p.Proxy + " (" + p.Position
		if p.Reason != "" {
			text += ": " + p.Reason
		}
		out = append(out, text+")")
	}
	if more := r.LackCount - len(r.Lacking); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// call calls the control plane until it answers or ctx ends. It retries only UNAVAILABLE.
func (c *Client) call(ctx context.Context) (*agentapi.DeregisterResponse, error) {
	conn, err := c.Dial(grpc.WithDefaultCallOptions(grpc.ForceCodec(JSONCodec{})))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	for {
		answer := &agentapi.DeregisterResponse{}
		err := conn.Invoke(ctx, agentapi.DeregisterMethod, c.request(ctx), answer)
		if err == nil {
			return answer, nil
		}
		if code := status.Code(err); code != codes.Unavailable || ctx.Err() != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
		if clock.Sleep(ctx, retryInterval) != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
	}
}

func (c *Client) request(ctx context.Context) *agentapi.DeregisterRequest {
	end, _ := ctx.Deadline()
	wait := time.Until(end)
	return &agentapi.DeregisterRequest{Node: c.Node, Instance: c.Instance, Addresses: c.Addresses, WaitMillis: max(1, (wait - min(answerMargin, wait/4)).Milliseconds())}
}

// reannounce repeats the deregistration until ctx ends.
func (c *Client) reannounce(ctx context.Context) {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(ctx, c.Timeout)
		if _, err := c.call(bounded); err != nil && ctx.Err() == nil {
			c.Log.Debug("cannot repeat the deregistration", "error", err)
		}
		cancel()
	}
}

// JSONCodec encodes gRPC messages as JSON.
type JSONCodec struct{}

// Marshal implements encoding.Codec.
func (JSONCodec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal implements encoding.Codec.
func (JSONCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

// Name implements encoding.Codec.
func (JSONCodec) Name() string { return "json" }
