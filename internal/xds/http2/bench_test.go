package http2

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The clients of benchmarks are a process: the test binary, with these environment variables.
const (
	crowdAddress = "HTTP2_BENCH_ADDRESS"
	crowdSize    = "HTTP2_BENCH_SIZE"
	crowdTLS     = "HTTP2_BENCH_TLS"
)

func crowdWanted() bool { return os.Getenv(crowdAddress) != "" }

// firstMessage is as large as a subscription to some hundreds of names.
const firstMessage = 30_000

// crowd opens connections, sends one message on each and answers each message that arrives, until
// its standard input ends.
func crowd() {
	n, _ := strconv.Atoi(os.Getenv(crowdSize))
	for range n {
		c, err := net.Dial("tcp", os.Getenv(crowdAddress))
		if err != nil {
			panic(err)
		}
		if os.Getenv(crowdTLS) != "" {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // a benchmark
		}
		go client(c)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func client(c net.Conn) {
	p := &peer{t: &testing.T{}, c: c}
	p.fr = xhttp2.NewFramer(c, bufio.NewReader(c))
	p.fr.SetReuseFrames()
	p.he = hpack.NewEncoder(&p.hb)
	p.greet()
	id := p.open(hold)
	for b := framed([]byte(long(firstMessage))); len(b) > 0; b = b[min(len(b), maxFrame):] {
		_ = p.fr.WriteData(id, false, b[:min(len(b), maxFrame)])
	}
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return
		}
		if f.Header().Type == xhttp2.FrameData {
			if p.fr.WriteData(id, false, framed([]byte(long(60)))) != nil {
				return
			}
			_ = p.fr.WriteWindowUpdate(0, f.Header().Length)
			_ = p.fr.WriteWindowUpdate(id, f.Header().Length)
		}
	}
}

// counting is a Receiver that only counts.
type counting struct{ got chan<- struct{} }

func (c counting) Receive([]byte) error { c.got <- struct{}{}; return nil }
func (c counting) IsInline([]byte) bool { return true }
func (c counting) End()                 {}

// BenchmarkFanOut sends a message to each of many connections and waits for the answers. ns/op is
// for one connection; B/conn is the live heap and stacks of an idle connection.
func BenchmarkFanOut(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, n := range []int{1000, 5000} {
			if testing.Short() && n > 1000 {
				continue // fewer connections show that it runs
			}
			b.Run(fmt.Sprintf("tls=%v/%d", secure, n), func(b *testing.B) { fanOut(b, n, secure) })
		}
	}
}

func fanOut(b *testing.B, n int, secure bool) {
	var o Options
	if secure {
		o.TLS = certificates(b).server
	}
	got, streams := make(chan struct{}, n), make(chan *Stream, n)
	s := New(map[string]Handler{hold: func(st *Stream) Receiver { streams <- st; return counting{got} }}, o)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	before := memory()
	go func() { _ = s.Serve(ln) }()
	defer s.Stop()
	clients := exec.Command(os.Args[0])
	clients.Env = append(os.Environ(), crowdAddress+"="+ln.Addr().String(), crowdSize+"="+strconv.Itoa(n))
	if secure {
		clients.Env = append(clients.Env, crowdTLS+"=1")
	}
	stdin, err := clients.StdinPipe()
	require.NoError(b, err)
	require.NoError(b, clients.Start())
	defer func() { _ = clients.Wait() }()
	defer stdin.Close()
	var all []*Stream
	for range n {
		<-got
		all = append(all, <-streams)
	}
	parts := [][]byte{[]byte(long(20)), []byte(long(660))}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n != 0 {
			continue // one change is n operations
		}
		for _, st := range all {
			_ = st.Send(parts)
		}
		for range n {
			<-got
		}
	}
	b.ReportMetric(float64(memory()-before)/float64(n), "B/conn")
	runtime.KeepAlive(all)
}

// memory returns the size of the live heap and the stacks.
func memory() uint64 {
	for range 3 { // pools release their buffers, and stacks shrink
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
