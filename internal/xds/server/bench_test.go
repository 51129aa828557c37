package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// loopback is a transport without cost that ACKs everything at once.
type loopback struct {
	requests chan []byte
}

func (l *loopback) receive() ([]byte, func(), error) {
	b, ok := <-l.requests
	if !ok {
		return nil, nil, io.EOF
	}
	return b, func() {}, nil
}

// send answers. It reads the nonce where assemble puts it: version first, then type and nonce.
func (l *loopback) send(messages []message) (bool, error) {
	for _, m := range messages {
		l.answer(m)
	}
	return false, nil
}

func (l *loopback) answer(m message) {
	head := m[0]
	_, _, n := protowire.ConsumeField(head)
	url, _, k := protowire.ConsumeField(head[n:])
	_ = url
	typ, _ := protowire.ConsumeBytes(head[n+1:])
	nonce, _ := protowire.ConsumeBytes(head[n+k+1:])
	b := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), typ)
	b = protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), nonce)
	l.requests <- b
}

func (l *loopback) requestContext() (context.Context, context.CancelFunc) {
	return context.Background(), func() {}
}

func (l *loopback) peer() string  { return "" }
func (l *loopback) caller() *Peer { return &Peer{} }
func (l *loopback) window() int   { return 0 }
func (l *loopback) pending() int  { return 0 }

type silent struct{ done *sync.WaitGroup }

func (silent) Published(model.Revision, int, time.Time) {}
func (silent) Sent(model.Revision, time.Time)           {}
func (s silent) Settled(_, _ model.Revision, o distribution.Outcome, _ time.Time) {
	if o == distribution.ACKed {
		s.done.Done()
	}
}

type oneTable struct{ t *table.Table }

func (oneTable) AddShards(context.Context, *model.Proxy, []string) error { return nil }

func (b oneTable) Bind(context.Context, *model.Proxy, func([]*table.Table)) ([]*table.Table, func(), error) {
	return []*table.Table{b.t}, nil, nil
}

// BenchmarkFanOut measures the server's cost of one change on each of many streams, from Publish to
// the last ACK, without the transport. ns/op is for one stream.
func BenchmarkFanOut(b *testing.B) {
	for _, streams := range []int{1000, 5000} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			var settled sync.WaitGroup
			t := table.New("t")
			t.Commit(1, []table.Update{endpoints("c1", "0")})
			s := New(oneTable{t}, silent{&settled}, slog.New(slog.DiscardHandler), Options{})
			node, _ := proto.Marshal(&corev3.Node{Id: nodeID})
			first := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), node)
			first = protowire.AppendString(protowire.AppendTag(first, 2, protowire.BytesType), resource.EndpointsURL)
			first = protowire.AppendString(protowire.AppendTag(first, 3, protowire.BytesType), "c1")
			var served sync.WaitGroup
			var all []*loopback
			for range streams {
				l := &loopback{requests: make(chan []byte, 8)}
				all = append(all, l)
				l.requests <- first
				served.Go(func() { _ = s.pull(ledger.Delta, &Port{}, l, false) })
			}
			require.Eventually(b, func() bool { return len(s.Proxies()) == streams }, testTimeout, time.Millisecond)
			b.ReportAllocs()
			rev := model.Revision(1)
			for n := 0; b.Loop(); n++ {
				if n%streams != 0 {
					continue // one change is streams operations
				}
				rev++
				settled.Add(streams)
				t.Commit(rev, []table.Update{endpoints("c1", fmt.Sprint(rev))})
				s.Publish(rev, []*table.Table{t})
				settled.Wait()
			}
			b.StopTimer()
			for _, l := range all {
				close(l.requests)
			}
			served.Wait()
			s.Close()
		})
	}
}

// BenchmarkAssemble measures encoding a response. The cost must not depend on its resources.
func BenchmarkAssemble(b *testing.B) {
	for _, n := range []int{1, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t := table.New("t")
			var updates []table.Update
			for i := range n {
				updates = append(updates, endpoints(fmt.Sprintf("outbound|80||service-%d.ns.svc.cluster.local", i), "1"))
			}
			t.Commit(1, updates)
			l := ledger.New(ledger.Delta, ledger.WholeRoutes, names.NewPool(), []*table.State{t.State()})
			l.Handle(&ledger.Request{TypeURL: []byte(resource.EndpointsURL), Subscribe: [][]byte{[]byte("*")}})
			out := l.Next(nil)
			b.ReportAllocs()
			for b.Loop() {
				a := assemble(ledger.Delta, out, nil)
				if size := sizeOf(a.messages[0]); size < 100*n {
					b.Fatal(size)
				}
				a.release()
			}
		})
	}
}

// BenchmarkParseACK measures the most frequent request, alone and with a node.
func BenchmarkParseACK(b *testing.B) {
	ack := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), resource.EndpointsURL)
	ack = protowire.AppendString(protowire.AppendTag(ack, 6, protowire.BytesType), "17")
	node := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), make([]byte, 61<<10))
	for name, in := range map[string][]byte{"alone": ack, "with node": append(node, ack...)} {
		b.Run(name, func(b *testing.B) {
			var r request
			b.ReportAllocs()
			for b.Loop() {
				if err := r.parse(ledger.Delta, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDistribution measures one query about 10,000 connected proxies.
func BenchmarkDistribution(b *testing.B) {
	const streams = 10000
	var settled sync.WaitGroup
	t := table.New("t")
	t.Commit(1, []table.Update{endpoints("c1", "0")})
	s := New(oneTable{t}, silent{&settled}, slog.New(slog.DiscardHandler), Options{})
	var served sync.WaitGroup
	var all []*loopback
	for i := range streams {
		node, _ := proto.Marshal(&corev3.Node{Id: nodeOf(fmt.Sprint("app-", i))})
		first := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), node)
		first = protowire.AppendString(protowire.AppendTag(first, 2, protowire.BytesType), resource.EndpointsURL)
		first = protowire.AppendString(protowire.AppendTag(first, 3, protowire.BytesType), "c1")
		l := &loopback{requests: make(chan []byte, 8)}
		all = append(all, l)
		l.requests <- first
		served.Go(func() { _ = s.pull(ledger.Delta, &Port{}, l, false) })
	}
	require.Eventually(b, func() bool { return len(s.Proxies()) == streams }, testTimeout, time.Millisecond)
	settled.Add(streams)
	t.Commit(2, []table.Update{endpoints("c1", "2")})
	s.Publish(2, []*table.Table{t})
	settled.Wait()
	b.ReportAllocs()
	for b.Loop() {
		if got := s.Distribution(&distribution.Query{Revision: 2}); len(got) != streams || got[0].Position != distribution.StateACKed {
			b.Fatal(len(got), got[0])
		}
	}
	b.StopTimer()
	gone := []distribution.GoneEndpoint{{Revision: 2, Hosts: []string{"c1"}, Address: "10.0.0.1"}}
	start := time.Now()
	for range 10 {
		if len(s.Holders(gone)) > 0 {
			b.Fatal("no proxy is behind")
		}
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/10, "ns/Holders")
	for _, l := range all {
		close(l.requests)
	}
	served.Wait()
	s.Close()
}
