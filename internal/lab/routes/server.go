package routes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// server is a minimal delta ADS server for one Envoy: it has resources, sends those that Envoy subscribes to, and
// reports when they are ACKed. It sends virtual hosts once their route configuration is ACKed, because Envoy drops
// earlier ones.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	listener net.Listener
	grpc     *grpc.Server
	serving  sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	resources map[string]map[string]*discoveryv3.Resource
	order     map[string][]string // names by type, in the order of put
	version   int
	stream    *stream // nil: Envoy is not connected
	trouble   error   // the first refusal
}

// stream is a connected Envoy. The server's lock guards its fields, and sending.
type stream struct {
	out     discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	asked   map[string]bool // types
	waiting map[string]*sent
	loaded  map[string]bool // route configurations whose virtual hosts were sent
	held    map[string]bool // route configurations that Envoy has
	log     []string        // requests with subscriptions, in order
}

// sent is a response that is not ACKed yet.
type sent struct {
	at    time.Time
	holds []string // route configurations in it
	done  chan answer
}

type answer struct {
	took    time.Duration
	refused string
}

func startServer(ctx context.Context) (*server, error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("xDS server: %w", err)
	}
	s := &server{resources: map[string]map[string]*discoveryv3.Resource{}, order: map[string][]string{}}
	s.serve(ln)
	return s, nil
}

func (s *server) serve(ln net.Listener) {
	s.listener, s.grpc = ln, grpc.NewServer(grpc.MaxRecvMsgSize(64<<20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	s.serving.Go(func() { _ = s.grpc.Serve(ln) }) // stop ends it
}

func (s *server) port() uint32 { return uint32(s.listener.Addr().(*net.TCPAddr).Port) } //nolint:forcetypeassert,gosec // it is TCP

func (s *server) stop() {
	s.grpc.Stop()
	s.serving.Wait()
}

// put stores items. It sends nothing.
func (s *server) put(items []item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range items {
		if err := s.take(it); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) take(it item) error {
	if it.message == nil {
		delete(s.resources[it.url], it.name)
		return nil
	}
	packed, err := anypb.New(it.message)
	if err != nil {
		return fmt.Errorf("%s: %w", it.name, err)
	}
	if s.resources[it.url] == nil {
		s.resources[it.url] = map[string]*discoveryv3.Resource{}
	}
	if s.resources[it.url][it.name] == nil {
		s.order[it.url] = append(s.order[it.url], it.name)
	}
	s.version++
	s.resources[it.url][it.name] = &discoveryv3.Resource{Name: it.name, Version: strconv.Itoa(s.version), Resource: packed}
	return nil
}

// DeltaAggregatedResources serves one stream.
func (s *server) DeltaAggregatedResources(out discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	st := &stream{out: out, asked: map[string]bool{}, waiting: map[string]*sent{}, loaded: map[string]bool{}, held: map[string]bool{}}
	s.mu.Lock()
	s.stream = st
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stream == st {
			s.stream = nil
		}
	}()
	for {
		request, err := out.Recv()
		if err != nil {
			return err
		}
		if err := s.handle(st, request); err != nil {
			return err
		}
	}
}

func (s *server) handle(st *stream, r *discoveryv3.DeltaDiscoveryRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered(st, r)
	first := !st.asked[r.GetTypeUrl()]
	st.asked[r.GetTypeUrl()] = true
	if names := r.GetResourceNamesSubscribe(); first || len(names) > 0 {
		st.log = append(st.log, fmt.Sprintf("%s %d names, %d held", shortType(r.GetTypeUrl()), len(names), len(r.GetInitialResourceVersions())))
		if err := s.subscribed(st, r); err != nil {
			return err
		}
	}
	return s.load(st)
}

// answered processes an ACK or a NACK.
func (s *server) answered(st *stream, r *discoveryv3.DeltaDiscoveryRequest) {
	w := st.waiting[r.GetResponseNonce()]
	if w == nil {
		return
	}
	delete(st.waiting, r.GetResponseNonce())
	a := answer{took: time.Since(w.at)}
	if e := r.GetErrorDetail(); e != nil {
		a.refused = e.GetMessage()
		s.trouble = errOr(s.trouble, fmt.Errorf("%s refused: %s", shortType(r.GetTypeUrl()), e.GetMessage()))
	} else {
		for _, rc := range w.holds {
			st.held[rc] = true
		}
	}
	w.done <- a
}

// subscribed sends what a request subscribes to: all of a wildcard type, or names. Envoy subscribes to virtual hosts
// without names, once on each stream.
func (s *server) subscribed(st *stream, r *discoveryv3.DeltaDiscoveryRequest) error {
	names := r.GetResourceNamesSubscribe()
	switch r.GetTypeUrl() {
	case resource.RouteConfigURL:
		for _, name := range names { // Envoy may have dropped it meanwhile, with its content
			delete(st.held, name)
			delete(st.loaded, name)
		}
	case resource.VirtualHostURL:
		for name := range r.GetInitialResourceVersions() {
			st.held[routeConfigOf(name)], st.loaded[routeConfigOf(name)] = true, true
		}
		return nil
	default:
		names = s.order[r.GetTypeUrl()]
	}
	_, err := s.send(st, r.GetTypeUrl(), names, nil)
	return err
}

// load sends the virtual hosts of route configurations that Envoy now has.
func (s *server) load(st *stream) error {
	if !st.asked[resource.VirtualHostURL] {
		return nil
	}
	var names, none []string
	for rc := range st.held {
		if !st.loaded[rc] {
			none = append(none, rc+"/none") // ends Envoy's wait if there are none
		}
	}
	for _, name := range s.order[resource.VirtualHostURL] {
		if rc := routeConfigOf(name); st.held[rc] && !st.loaded[rc] {
			names = append(names, name)
		}
	}
	if len(none) == 0 {
		return nil
	}
	for rc := range st.held {
		st.loaded[rc] = true
	}
	_, err := s.send(st, resource.VirtualHostURL, names, none)
	return err
}

// send sends resources in one response. Missing names are removed.
func (s *server) send(st *stream, url string, names, removed []string) (*sent, error) {
	s.version++
	nonce := strconv.Itoa(s.version)
	response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: nonce, SystemVersionInfo: nonce, RemovedResources: removed}
	w := &sent{done: make(chan answer, 1)}
	for _, name := range names {
		if r := s.resources[url][name]; r != nil {
			response.Resources = append(response.Resources, r)
			if url == resource.RouteConfigURL {
				w.holds = append(w.holds, name)
			}
		} else {
			response.RemovedResources = append(response.RemovedResources, name)
		}
	}
	w.at = time.Now()
	st.waiting[nonce] = w
	return w, st.out.Send(response)
}

var errNotConnected = errors.New("no Envoy is connected")

// change stores items and sends them, one response for each run of a type. It returns when the last one is ACKed. took
// begins when the first one is sent.
func (s *server) change(ctx context.Context, items []item) (took time.Duration, err error) {
	var begin time.Time
	for len(items) > 0 && err == nil {
		n := 1
		for n < len(items) && items[n].url == items[0].url {
			n++
		}
		var w *sent
		if w, err = s.push(items[:n]); err != nil {
			break
		}
		if begin.IsZero() {
			begin = w.at
		}
		err = await(ctx, w)
		items = items[n:]
	}
	return time.Since(begin), err
}

func (s *server) push(items []item) (*sent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil {
		return nil, errNotConnected
	}
	names := make([]string, len(items))
	for i, it := range items {
		if err := s.take(it); err != nil {
			return nil, err
		}
		names[i] = it.name
	}
	return s.send(s.stream, items[0].url, names, nil)
}

// ackTime is when an ACK counts as lost.
const ackTime = 20 * time.Second

func await(ctx context.Context, w *sent) error {
	timer := time.NewTimer(ackTime)
	defer timer.Stop()
	select {
	case a := <-w.done:
		if a.refused != "" {
			return fmt.Errorf("a change was refused: %s", a.refused)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("a change was not answered within %s", ackTime)
	}
}
