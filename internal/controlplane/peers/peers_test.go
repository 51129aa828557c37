package peers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// other is a control plane with an ID.
type other struct {
	address string
	server  *grpc.Server
}

// ownAddress belongs to this package's tests: no other process takes a port of it that is closed and opened
// again.
const ownAddress = "127.0.0.3:0"

// startOther starts a control plane at an address, which may be empty.
func startOther(t *testing.T, id, address string) *other {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	o := &other{address: ln.Addr().String(), server: grpc.NewServer(grpc.ForceServerCodec(jsonCodec{}))}
	handler := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in hello
		return &hello{id}, decode(&in)
	}
	o.server.RegisterService(&grpc.ServiceDesc{ServiceName: "moonsail.v1.ControlPlane", Methods: []grpc.MethodDesc{{MethodName: "Hello", Handler: handler}}}, nil)
	var serving sync.WaitGroup
	serving.Go(func() { _ = o.server.Serve(ln) })
	t.Cleanup(func() { o.server.Stop(); serving.Wait() })
	return o
}

// fixture is Peers with a list that a test changes.
type fixture struct {
	*Peers
	t *testing.T

	mu     sync.Mutex // guards the fields below
	listed []string
}

func (f *fixture) list(addresses ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = addresses
}

func run(t *testing.T, own string, listed ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, listed: listed}
	f.Peers = New(Options{
		Listed: func() []string { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.listed) },
		Own:    func() string { return own }, Log: slog.New(slog.DiscardHandler),
		Every: 5 * time.Millisecond, Patience: 50 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx, nil) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-f.Looked()
	return f
}

// eventually waits until the peers at these addresses answer.
func (f *fixture) eventually(addresses ...string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		var have []string
		for _, p := range f.All() {
			if d, _, _ := p.Silent(); d > 0 {
				return false
			}
			have = append(have, p.Address)
		}
		slices.Sort(addresses)
		return slices.Equal(have, addresses)
	}, time.Minute, time.Millisecond)
}

func TestWhoThereIs(t *testing.T) {
	a, b := startOther(t, "a", ""), startOther(t, "b", ownAddress)
	f := run(t, "", a.address)
	f.eventually(a.address)
	require.Zero(t, f.Lost())
	f.list(a.address, b.address)
	f.eventually(a.address, b.address)
	f.list(b.address)
	f.eventually(b.address)
	lost := f.Lost()
	require.NotZero(t, lost, "one that had lived is not listed any more")

	b.server.Stop()
	f.eventually()
	require.Greater(t, f.Lost(), lost, "it refuses connections")
	startOther(t, "b2", b.address)
	f.eventually(b.address)
}

func TestNotItself(t *testing.T) {
	f := run(t, "")
	self, twice := startOther(t, f.ID(), ""), startOther(t, "a", "")
	again := startOther(t, "a", "")
	f.list(self.address, twice.address, again.address)
	require.Eventually(t, func() bool {
		all := f.All()
		return len(all) == 1 && all[0].Address != self.address
	}, time.Minute, time.Millisecond, "by what they say")
	g := run(t, self.address, self.address)
	require.Empty(t, g.All(), "by the address")
	_, port, err := net.SplitHostPort(self.address)
	require.NoError(t, err)
	require.Empty(t, run(t, "[::]:"+port, self.address).All(), "by the port, at any of this host's addresses")
}

func TestOneThatTakesItsPlace(t *testing.T) {
	a := startOther(t, "a", "")
	f := run(t, "", a.address)
	f.eventually(a.address)
	p := f.All()[0]
	p.noteHeard("a2")
	require.NotZero(t, f.Lost(), "the streams of the first are gone")
}

func TestSilent(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	f := run(t, "", ln.Addr().String())
	require.Len(t, f.All(), 1)
	require.Eventually(t, func() bool {
		_, over, why := f.All()[0].Silent()
		return over && why != ""
	}, time.Minute, time.Millisecond)
}

// TestListensAgain checks that a peer which accepts connections again may have proxies before its first
// answer.
func TestListensAgain(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ownAddress)
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	f := run(t, "", ln.Addr().String())
	require.Eventually(t, func() bool { return len(f.All()) == 0 }, time.Minute, time.Millisecond)
	ln, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	defer ln.Close()
	require.Eventually(t, func() bool {
		known, answering, silent := f.Count()
		return known == 1 && answering == 0 && silent == 1
	}, time.Minute, time.Millisecond)
}

func TestNoControlPlane(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(ln) })
	defer serving.Wait()
	defer g.Stop()
	f := run(t, "", ln.Addr().String())
	require.Eventually(t, func() bool {
		p := f.All()[0]
		_, over, _ := p.Silent()
		return over && status.Code(p.Call(t.Context(), MethodHello, &hello{}, &hello{})) == codes.Unimplemented
	}, time.Minute, time.Millisecond, "it is not waited for")
}

func TestBounds(t *testing.T) {
	var many []string
	for i := range 3 * Max {
		many = append(many, net.JoinHostPort("127.0.0.1", strconv.Itoa(1+i)))
	}
	f := run(t, "", many...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Peers.mu.Lock()
	defer f.Peers.mu.Unlock()
	require.Len(t, f.known, Max)
}

func TestNamesHaveAddresses(t *testing.T) {
	s := New(Options{})
	require.Contains(t, s.resolve(t.Context(), "localhost"), "127.0.0.1")
	require.Equal(t, []string{"::1"}, s.resolve(t.Context(), "::1"))
	require.Equal(t, []string{"nowhere.invalid"}, s.resolve(t.Context(), "nowhere.invalid"), "it counts as a peer without an answer")
}

func TestHello(t *testing.T) {
	s := New(Options{})
	b, err := s.Hello(t.Context(), nil)
	require.NoError(t, err)
	var h hello
	require.NoError(t, json.Unmarshal(b, &h))
	require.Equal(t, s.ID(), h.ID)
}
