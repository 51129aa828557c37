package nameserver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/xds/nametable"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mesh() []nametable.Entry {
	pods := make([]string, 60)
	for i := range pods {
		pods[i] = fmt.Sprintf("10.2.0.%d", i)
	}
	return []nametable.Entry{
		{Host: "web.shop.svc.cluster.local", Addresses: []string{"10.0.0.1", "fd00::1"}, Registry: nametable.Kubernetes, ShortName: "web", Namespace: "shop"},
		{Host: "db.bank.svc.cluster.local", Addresses: pods, Registry: nametable.Kubernetes, ShortName: "db", Namespace: "bank"},
		{Host: "API.example.com", Addresses: []string{"192.0.2.1", "192.0.2.2"}},
		{Host: "*.wild.example.com", Addresses: []string{"192.0.2.9"}},
		{Host: "v4.example.com.", Addresses: []string{"192.0.2.7", "no address"}},
	}
}

func newTable() *Table {
	t := NewTable("shop", "cluster.local", []string{"shop.svc.cluster.local", "svc.cluster.local.", "cluster.local"})
	t.Update(mesh(), nil)
	return t
}

func TestLookup(t *testing.T) {
	table := newTable()
	for question, want := range map[string]string{
		"web.shop.svc.cluster.local.": "web.shop.svc.cluster.local",
		"Web.Shop.svc.cluster.local.": "web.shop.svc.cluster.local",
		"web.":                        "web.shop.svc.cluster.local",
		"web.shop.":                   "web.shop.svc.cluster.local",
		"web.shop.svc.":               "web.shop.svc.cluster.local",
		"db.bank.":                    "db.bank.svc.cluster.local",
		"api.example.com.":            "api.example.com",
		"v4.example.com.":             "v4.example.com",
		"a.wild.example.com.":         "*.wild.example.com",
		"a.b.wild.example.com.":       "*.wild.example.com",
		"api.example.com.shop.svc.cluster.local.": "api.example.com",
		"api.example.com.cluster.local.":          "api.example.com",
		// Names of other servers.
		"db.":               "",
		"web.bank.":         "",
		"wild.example.com.": "",
		"example.com.":      "",
		"web.shop.svc.cluster.local.shop.svc.cluster.local.": "web.shop.svc.cluster.local",
		".": "",
	} {
		h, _ := table.lookup(question)
		got := ""
		if h != nil {
			got = h.name
		}
		require.Equal(t, want, got, question)
	}
	table.Update([]nametable.Entry{{Host: "new.example.com", Addresses: []string{"192.0.2.3"}}}, []string{"api.example.com"})
	h, _ := table.lookup("api.example.com.")
	require.Nil(t, h)
	h, _ = table.lookup("new.example.com.")
	require.NotNil(t, h)
}

// other starts a server for other names, until the test ends.
func other(t *testing.T, answers string) string {
	t.Helper()
	packets, connections := listenBoth(t)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{&dns.TXT{Hdr: header(q.Question[0].Name, dns.TypeTXT), Txt: []string{answers}}}
		_ = w.WriteMsg(m)
	})
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: connections, Handler: handler}} {
		started, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { defer close(ended); _ = s.ActivateAndServe() }()
		await.From(t, started)
		t.Cleanup(func() { _ = s.Shutdown(); await.From(t, ended) })
	}
	return packets.LocalAddr().String()
}

// listenBoth listens on one port with UDP and TCP. It retries ports that another process uses for one of the two.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		packets, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", "127.0.0.1:0")
		require.NoError(t, err)
		connections, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, connections
		}
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.NoError(t, packets.Close())
	}
}

func start(t *testing.T, table *Table, upstream ...string) string {
	t.Helper()
	for {
		s, err := Start(t.Context(), Options{Addresses: []string{"127.0.0.1:0"}, Table: table, Upstream: upstream,
			Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Cleanup(s.Close)
			return s.Addr()
		}
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	}
}

func ask(t *testing.T, network, server, name string, typ uint16) *dns.Msg {
	t.Helper()
	out, _, err := (&dns.Client{Net: network, Timeout: time.Minute}).Exchange(new(dns.Msg).SetQuestion(name, typ), server)
	require.NoError(t, err)
	return out
}

// texts returns the answers without their headers, sorted.
func texts(m *dns.Msg) []string {
	var out []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		case *dns.CNAME:
			out = append(out, "is "+rr.Target)
		case *dns.TXT:
			out = append(out, rr.Txt...)
		}
	}
	slices.Sort(out)
	return out
}

func TestAnswers(t *testing.T) {
	server := start(t, newTable(), other(t, "another server"))
	for _, network := range []string{"udp", "tcp"} {
		for _, tc := range []struct {
			name string
			typ  uint16
			want []string
		}{
			{"web.shop.svc.cluster.local.", dns.TypeA, []string{"10.0.0.1"}},
			{"web.", dns.TypeAAAA, []string{"fd00::1"}},
			{"api.example.com.", dns.TypeA, []string{"192.0.2.1", "192.0.2.2"}},
			{"api.example.com.", dns.TypeAAAA, nil},
			{"v4.example.com.", dns.TypeA, []string{"192.0.2.7"}},
			{"api.example.com.shop.svc.cluster.local.", dns.TypeA, []string{"192.0.2.1", "192.0.2.2", "is api.example.com."}},
			{"api.example.com.", dns.TypeTXT, []string{"another server"}},
			{"www.example.org.", dns.TypeA, []string{"another server"}},
		} {
			m := ask(t, network, server, tc.name, tc.typ)
			require.Equal(t, dns.RcodeSuccess, m.Rcode, tc.name)
			require.Equal(t, tc.want, texts(m), tc.name)
			for _, rr := range m.Answer {
				require.EqualValues(t, TTL, rr.Header().Ttl)
			}
		}
	}
	require.Len(t, ask(t, "tcp", server, "db.bank.", dns.TypeA).Answer, 60, "all Pods of a headless service")
	m := ask(t, "udp", server, "db.bank.", dns.TypeA)
	require.True(t, m.Truncated, "the client retries with TCP")
	m.Compress = true // as received
	require.LessOrEqual(t, m.Len(), dns.MinMsgSize)
	first := ask(t, "udp", server, "api.example.com.", dns.TypeA).Answer[0].(*dns.A).A.String()
	second := ask(t, "udp", server, "api.example.com.", dns.TypeA).Answer[0].(*dns.A).A.String()
	require.NotEqual(t, first, second, "the order changes")
}

// TestEmptyTable checks that unknown names are SERVFAIL before the first names arrive, and not NXDOMAIN.
func TestEmptyTable(t *testing.T) {
	server := start(t, NewTable("shop", "cluster.local", nil), other(t, "x"))
	require.Equal(t, dns.RcodeServerFailure, ask(t, "udp", server, "web.", dns.TypeA).Rcode)
}

// TestSilentServers checks that they are skipped, and that a question without an answer is SERVFAIL.
func TestSilentServers(t *testing.T) {
	away := func() string { // nothing listens there
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return l.Addr().String()
	}()
	require.Equal(t, []string{"y"}, texts(ask(t, "tcp", start(t, newTable(), away, other(t, "y")), "example.org.", dns.TypeA)))
	require.Equal(t, dns.RcodeServerFailure, ask(t, "tcp", start(t, newTable(), away), "example.org.", dns.TypeA).Rcode)
	require.Equal(t, dns.RcodeServerFailure, ask(t, "udp", start(t, newTable()), "example.org.", dns.TypeA).Rcode)
}

// TestStartError checks that a server that cannot start returns an error.
func TestStartError(t *testing.T) {
	packets, connections := listenBoth(t)
	require.NoError(t, connections.Close())
	s := &Server{opts: Options{Log: slog.New(slog.DiscardHandler)}}
	require.Error(t, s.serve(&dns.Server{}, packets))
	require.ErrorIs(t, packets.Close(), net.ErrClosed)
	s.Close()
}

func TestReadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(file, []byte("nameserver 10.0.0.10\nnameserver 127.0.0.1\nnameserver fd00::a\nsearch shop.svc.cluster.local cluster.local\n"), 0o600))
	servers, search, err := ReadConfig(file, []string{"127.0.0.1:53"})
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.10:53", "[fd00::a]:53"}, servers)
	require.Equal(t, []string{"shop.svc.cluster.local", "cluster.local"}, search)
	_, _, err = ReadConfig(file+".none", nil)
	require.Error(t, err)
}
