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
)

// instanceMetadata tells the control plane one run of a sidecar from the next.
const instanceMetadata = "MOONSAIL_INSTANCE"

// nameInstance gives this run a name that nobody else has.
func (s *settings) nameInstance() {
	s.instance = rand.Text()
	s.node.metadata[instanceMetadata] = s.instance
	s.node.metadata[statusPortMetadata] = s.ports.Status
}

// leaveMethod is the control plane's; its messages are JSON (leaveRequest, leaveAnswer).
const leaveMethod = "/moonsail.v1.Workload/Leave"

type leaveRequest struct {
	Node       string   `json:"node"`
	Instance   string   `json:"instance"`
	Addresses  []string `json:"addresses"`
	WaitMillis int64    `json:"waitMs"`
}

type leaveAnswer struct {
	ACKed   int `json:"acked"`
	Lacking []struct {
		Proxy    string `json:"proxy"`
		Position string `json:"position"`
		Reason   string `json:"reason"`
	} `json:"lacking"`
	LackCount int `json:"lackCount"`
}

// lacking names the proxies that may still call the workload.
func (l *leaveAnswer) lacking() string {
	var out []string
	for _, p := range l.Lacking {
		text := p.Proxy + " (" + p.Position
		if p.Reason != "" {
			text += ": " + p.Reason
		}
		out = append(out, text+")")
	}
	if more := l.LackCount - len(l.Lacking); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// leaving is the one departure of an agent: whoever wants it, it is asked for once.
type leaving struct {
	once  sync.Once // guards the fields below
	known bool      // every proxy knows
	text  string    // for people

	again repeating
}

// leave has the workload's endpoints taken away, and waits until every proxy has ACKed that,
// or for the bound. It is done once; all callers get what came of it.
func (a *agent) leave(ctx context.Context) (known bool, text string) {
	l := &a.leaving
	l.once.Do(func() {
		l.known, l.text = a.askToLeave(ctx)
		if l.known {
			a.log.Info(l.text)
		} else {
			a.log.Warn(l.text)
		}
		if a.everSeen.Load() && a.leaveBound > 0 {
			l.again.start(a.tellAgain)
		}
	})
	return l.known, l.text
}

func (a *agent) askToLeave(ctx context.Context) (known bool, text string) {
	start := time.Now()
	fallback := fmt.Sprintf("the drain takes at least the drain time of %s", a.drainTime)
	switch {
	case !a.everSeen.Load():
		return true, "not told to anybody that this leaves: it was never ready"
	case a.leaveBound <= 0:
		return true, "not told to anybody that this leaves: it is not wanted (--leave-timeout)"
	}
	ctx, cancel := context.WithTimeout(ctx, a.leaveBound)
	defer cancel()
	answer, err := a.callLeave(ctx)
	took := time.Since(start).Round(100 * time.Microsecond)
	switch {
	case err != nil:
		return false, fmt.Sprintf("leaving came to nothing after %s: the control plane at %s: %v; %s", took, a.XDS.Address, err, fallback)
	case answer.LackCount > 0:
		return false, fmt.Sprintf("left: %s ACKed in %s, %d did not: %s; %s", proxies(answer.ACKed), took, answer.LackCount, answer.lacking(), fallback)
	}
	return true, fmt.Sprintf("left: %s ACKed in %s", proxies(answer.ACKed), took)
}

func proxies(n int) string {
	if n == 1 {
		return "1 proxy"
	}
	return fmt.Sprintf("%d proxies", n)
}

// Between two attempts to reach the control plane.
const leaveRetry = 100 * time.Millisecond

// callLeave asks until it gets an answer, or one that is final, or ctx ends.
func (a *agent) callLeave(ctx context.Context) (*leaveAnswer, error) {
	conn, err := a.dialControlPlane()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	for {
		answer := &leaveAnswer{}
		err := conn.Invoke(ctx, leaveMethod, a.leaveRequest(ctx), answer)
		if err == nil {
			return answer, nil
		}
		if c := status.Code(err); c != codes.Unavailable || ctx.Err() != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
		if pauseFor(ctx, leaveRetry) != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
	}
}

// dialControlPlane is a connection for methods with messages of JSON; it is made when the
// first is called.
func (a *agent) dialControlPlane() (*grpc.ClientConn, error) {
	security, err := a.xdsCredentials()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(a.xdsTarget(), grpc.WithTransportCredentials(security), grpc.WithDefaultCallOptions(grpc.ForceCodec(jsonCodec{})), grpc.WithNoProxy())
}

// xdsTarget is the control plane, as gRPC spells it.
func (a *agent) xdsTarget() string {
	if socketPath(a.XDS.Address) == "" {
		return "dns:///" + a.XDS.Address
	}
	return a.XDS.Address
}

// leaveMargin is what the control plane answers earlier than the bound, so that the answer
// says who lacks it.
const leaveMargin = 200 * time.Millisecond

func (a *agent) leaveRequest(ctx context.Context) *leaveRequest {
	end, _ := ctx.Deadline()
	wait := time.Until(end)
	return &leaveRequest{Node: a.node.id, Instance: a.instance, Addresses: a.Workload.IPs, WaitMillis: max(1, (wait - min(leaveMargin, wait/4)).Milliseconds())}
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

// awaitLeft leaves, and tells why the wait for it ended: drainDone where nothing came between.
func (a *agent) awaitLeft(p *envoy.Process) (known bool, outcome drainOutcome) {
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan bool, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		known, _ := a.leave(ctx)
		left <- known
	})
	defer asking.Wait()
	defer cancel()
	for {
		select {
		case known := <-left:
			return known, drainDone
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

// jsonCodec is gRPC's messages as JSON.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }
func (jsonCodec) Name() string                    { return "json" }
