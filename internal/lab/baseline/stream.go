package baseline

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// stream is the stream of one proxy. Its handler sends; another goroutine reads.
type stream struct {
	server *server
	grpc   discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	wake   chan struct{} // capacity 1
	asked  chan ask      // requests that need an answer
	acks   chan struct{} // capacity 1: the last broadcast is ACKed

	cursor int // last broadcast sent; set by join, then used by the handler
}

// ask is the content of a request.
type ask struct {
	kind  fleet.Kind
	probe bool
}

func (s *stream) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// DeltaAggregatedResources implements the service.
func (s *server) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	st := &stream{server: s, grpc: g, wake: make(chan struct{}, 1), asked: make(chan ask, 8), acks: make(chan struct{}, 1)}
	s.hub.join(st)
	defer s.hub.leave(st)
	end := make(chan error, 1)
	go func() { end <- st.read() }()
	return st.write(end)
}

// write answers and broadcasts, one message in flight.
func (s *stream) write(end <-chan error) error {
	inFlight := false
	for {
		wake := s.wake
		if inFlight {
			wake = nil
		}
		select {
		case err := <-end:
			return err
		case a := <-s.asked:
			if err := s.answer(a); err != nil {
				return err
			}
		case <-s.acks:
			inFlight = false
			s.kick()
		case <-wake:
			m, to, err := s.server.hub.since(s.grpc, s.cursor)
			if err != nil {
				return err
			}
			if m == nil {
				continue
			}
			s.cursor, inFlight = to, true
			if err := s.grpc.SendMsg(m); err != nil {
				return err
			}
		}
	}
}

// answer plays back a control plane's response to the same request.
func (s *stream) answer(a ask) error {
	list := s.server.playback[a.kind]
	if a.probe {
		list = []*discoveryv3.DeltaDiscoveryResponse{probeAnswer}
	}
	for i, resp := range list {
		m, err := s.server.prepared(s.grpc, a, i, resp)
		if err != nil {
			return err
		}
		if err := s.grpc.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

var probeAnswer = &discoveryv3.DeltaDiscoveryResponse{
	TypeUrl: fleet.URLs[fleet.EDS], Nonce: "probe", RemovedResources: []string{fleet.Probe},
}

// BroadcastNonce is the nonce of the responses in the directory, to recognize their ACKs.
const BroadcastNonce = "broadcast"

func (s *stream) read() error {
	asked := [fleet.Kinds]bool{}
	for {
		r, err := s.grpc.Recv()
		if err != nil {
			return err
		}
		if r.ResponseNonce == BroadcastNonce {
			s.server.answered.now()
			select {
			case s.acks <- struct{}{}:
			default:
			}
		}
		k := fleet.Kind(slices.Index(fleet.URLs[:], r.TypeUrl)) //nolint:gosec // -1 matches no kind
		if k >= fleet.Kinds || r.ResponseNonce != "" {
			continue
		}
		a := ask{kind: k, probe: slices.Contains(r.ResourceNamesSubscribe, fleet.Probe)}
		if !a.probe && (asked[k] || len(r.InitialResourceVersions) > 0) {
			continue
		}
		asked[k] = true
		select {
		case s.asked <- a:
		case <-s.grpc.Context().Done():
		}
	}
}

// prepared encodes each answer once for all streams.
func (s *server) prepared(g grpc.ServerStream, a ask, i int, resp *discoveryv3.DeltaDiscoveryResponse) (*grpc.PreparedMsg, error) {
	key := answerKey{a, i}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.answers[key]; m != nil {
		return m, nil
	}
	m, err := prepare(g, resp)
	if err == nil {
		s.answers[key] = m
	}
	return m, err
}
