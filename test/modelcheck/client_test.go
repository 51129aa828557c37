package modelcheck

import (
	"context"
	"net"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// stream is the stream of one Envoy. A goroutine reads it; close ends it.
type stream struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	send   func(*request, *corev3.Node) error
	done   chan struct{}

	mu    sync.Mutex // guards what follows
	inbox []*response
	err   error // why the stream has ended
}

// dial opens a stream of the aggregated discovery service.
func dial(l *bufconn.Listener, sotw bool) (*stream, error) {
	conn, err := grpc.NewClient("passthrough:///model", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{conn: conn, cancel: cancel, done: make(chan struct{})}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	var receive func() (*response, error)
	if sotw {
		receive, err = s.openSotw(ctx, ads)
	} else {
		receive, err = s.openDelta(ctx, ads)
	}
	if err != nil {
		cancel()
		_ = conn.Close()
		return nil, err
	}
	go s.read(receive)
	return s, nil
}

func (s *stream) read(receive func() (*response, error)) {
	defer close(s.done)
	for {
		r, err := receive()
		s.mu.Lock()
		if err != nil {
			s.err = err
		} else if r.kind < kinds {
			s.inbox = append(s.inbox, r)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// next returns the next response; nil: none has arrived.
func (s *stream) next() (*response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inbox) == 0 {
		return nil, s.err
	}
	r := s.inbox[0]
	s.inbox = s.inbox[1:]
	return r, nil
}

func (s *stream) close() {
	s.cancel()
	<-s.done
	_ = s.conn.Close()
}

func refusalOf(r *request) *status.Status {
	if r.refusal == "" {
		return nil
	}
	return &status.Status{Code: 13, Message: r.refusal}
}

func (s *stream) openDelta(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) (func() (*response, error), error) {
	wire, err := ads.DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	s.send = func(r *request, node *corev3.Node) error {
		return wire.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: r.kind.url(), ResourceNamesSubscribe: r.subscribe, ResourceNamesUnsubscribe: r.unsubscribe,
			InitialResourceVersions: r.initial, ResponseNonce: r.nonce, ErrorDetail: refusalOf(r),
		})
	}
	return func() (*response, error) {
		m, err := wire.Recv()
		if err != nil {
			return nil, err
		}
		r := &response{kind: kindOf(m.GetTypeUrl()), nonce: m.GetNonce(), removed: m.GetRemovedResources()}
		for _, x := range m.GetResources() {
			if r.kind < kinds {
				r.resources = append(r.resources, received{x.GetName(), x.GetVersion(), parse(r.kind, x.GetResource().GetValue())})
			}
		}
		return r, nil
	}, nil
}

func (s *stream) openSotw(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) (func() (*response, error), error) {
	wire, err := ads.StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	names, nonces := [kinds]map[string]bool{}, [kinds]string{}
	for k := range kinds {
		names[k] = map[string]bool{}
	}
	s.send = func(r *request, node *corev3.Node) error {
		for _, n := range r.unsubscribe {
			delete(names[r.kind], n)
		}
		for _, n := range r.subscribe {
			names[r.kind][n] = true
		}
		if r.nonce != "" {
			nonces[r.kind] = r.nonce
		}
		list := make([]string, 0, len(names[r.kind]))
		for n := range names[r.kind] {
			list = append(list, n)
		}
		slices.Sort(list)
		return wire.Send(&discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: r.kind.url(), ResourceNames: list, ResponseNonce: nonces[r.kind], VersionInfo: r.version, ErrorDetail: refusalOf(r),
		})
	}
	return func() (*response, error) {
		m, err := wire.Recv()
		if err != nil {
			return nil, err
		}
		r := &response{kind: kindOf(m.GetTypeUrl()), nonce: m.GetNonce(), version: m.GetVersionInfo()}
		for _, x := range m.GetResources() {
			if r.kind < kinds {
				one := parse(r.kind, x.GetValue())
				r.resources = append(r.resources, received{one.name, "", one})
			}
		}
		return r, nil
	}, nil
}
