package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// nameInstance gives this run of the sidecar a unique name, by which the control plane tells it
// from the next run.
func (s *settings) nameInstance() {
	s.instance = rand.Text()
	s.node.metadata[agentapi.MetaInstance] = s.instance
	s.node.metadata[agentapi.MetaStatusPort] = s.ports.Status
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

// deregistration is the one deregistration of an agent. It runs once, whatever asks for it.
type deregistration struct {
	once  sync.Once // guards the fields below
	acked bool      // every proxy has ACKed
	text  string    // the outcome, for logs and people

	repeat repeating
}

// deregister removes the workload's endpoints from the mesh. It waits until every proxy has ACKed
// that, or for the bound. It runs once; all callers get its outcome.
func (a *agent) deregister(ctx context.Context) (acked bool, text string) {
	d := &a.deregistration
	d.once.Do(func() {
		d.acked, d.text = a.tryDeregister(ctx)
		if d.acked {
			a.log.Info(d.text)
		} else {
			a.log.Warn(d.text)
		}
		if a.everSeen.Load() && a.leaveBound > 0 {
			d.repeat.start(a.reannounce)
		}
	})
	return d.acked, d.text
}

func (a *agent) tryDeregister(ctx context.Context) (acked bool, text string) {
	start := time.Now()
	fallback := fmt.Sprintf("the workload drains for at least %s", a.drainTime)
	switch {
	case !a.everSeen.Load():
		return true, "not deregistered: the workload was never ready"
	case a.leaveBound <= 0:
		return true, "not deregistered: --leave-timeout is 0"
	}
	ctx, cancel := context.WithTimeout(ctx, a.leaveBound)
	defer cancel()
	answer, err := a.callDeregister(ctx)
	took := time.Since(start).Round(100 * time.Microsecond)
	switch {
	case err != nil:
		return false, fmt.Sprintf("deregistration failed after %s: control plane %s: %v; %s", took, a.XDS.Address, err, fallback)
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

// deregisterRetry is the time between two attempts to reach the control plane.
const deregisterRetry = 100 * time.Millisecond

// callDeregister calls the control plane until it answers or ctx ends. Only UNAVAILABLE is retried.
func (a *agent) callDeregister(ctx context.Context) (*agentapi.DeregisterResponse, error) {
	conn, err := a.dialControlPlane()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	for {
		answer := &agentapi.DeregisterResponse{}
		err := conn.Invoke(ctx, agentapi.DeregisterMethod, a.deregisterRequest(ctx), answer)
		if err == nil {
			return answer, nil
		}
		if c := status.Code(err); c != codes.Unavailable || ctx.Err() != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
		if pauseFor(ctx, deregisterRetry) != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
	}
}

// dialControlPlane returns a connection for methods with JSON messages. It connects on the first call.
func (a *agent) dialControlPlane() (*grpc.ClientConn, error) {
	security, err := a.xdsCredentials()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(a.xdsTarget(), grpc.WithTransportCredentials(security), grpc.WithDefaultCallOptions(grpc.ForceCodec(jsonCodec{})), grpc.WithNoProxy())
}

// xdsTarget returns the control plane's address as a gRPC target.
func (a *agent) xdsTarget() string {
	if socketPath(a.XDS.Address) == "" {
		return "dns:///" + a.XDS.Address
	}
	return a.XDS.Address
}

// answerMargin is how long before the bound the control plane answers, so that the answer arrives
// in time and lists the proxies that lack the change.
const answerMargin = 200 * time.Millisecond

func (a *agent) deregisterRequest(ctx context.Context) *agentapi.DeregisterRequest {
	end, _ := ctx.Deadline()
	wait := time.Until(end)
	return &agentapi.DeregisterRequest{Node: a.node.id, Instance: a.instance, Addresses: a.Workload.IPs, WaitMillis: max(1, (wait - min(answerMargin, wait/4)).Milliseconds())}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitDeregistered deregisters the workload, and returns why the wait ended: drainDone unless
// something came between.
func (a *agent) awaitDeregistered(p *envoy.Process) (acked bool, outcome drainOutcome) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan bool, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		acked, _ := a.deregister(ctx)
		done <- acked
	})
	defer asking.Wait()
	defer cancel()
	for {
		select {
		case acked := <-done:
			return acked, drainDone
		case <-p.Done():
			return false, drainCrashed
		case <-a.Abort:
			return false, drainAborted
		case <-a.quit:
			return false, drainQuit
		case sig := <-a.Signals:
			a.forward(p, sig)
		}
	}
}

// jsonCodec encodes gRPC messages as JSON.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }
func (jsonCodec) Name() string                    { return "json" }
