package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
	"github.com/moonsail/moonsail/internal/sidecar/agent/deregister"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

func init() { encoding.RegisterCodec(deregister.JSONCodec{}) }

// registerDeregister serves f.deregister, if it is set.
func (f *fakeADS) registerDeregister(g *grpc.Server) {
	if f.deregister == nil {
		return
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(agentapi.DeregisterMethod, "/"), "/")
	g.RegisterService(&grpc.ServiceDesc{ServiceName: service, Methods: []grpc.MethodDesc{{
		MethodName: method,
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			q := &agentapi.DeregisterRequest{}
			if err := decode(q); err != nil {
				return nil, err
			}
			return f.deregister(ctx, q)
		},
	}}}, nil)
}

type deregisterHandler = func(context.Context, *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error)

// startReady runs a sidecar until it is ready, with a control plane that serves h.
func startReady(t *testing.T, h deregisterHandler, change func(*Config)) (*sidecar, *fakeADS) {
	t.Helper()
	ads := &fakeADS{open: make(chan struct{}), versions: map[string]string{}, deregister: h}
	ads.stop = ads.serve(t, ownIP()+":0", nil)
	close(ads.open)
	s := startSidecar(t, ownIP(), ads.address, func(c *Config) {
		c.LeaveTimeout = ptr(patience)
		if change != nil {
			change(c)
		}
	})
	s.awaitReady()
	s.awaitPid(1)
	return s, ads
}

// TestDeregistersBeforeTheDrain checks that the sidecar is not ready, but serves, until every proxy has ACKed.
func TestDeregistersBeforeTheDrain(t *testing.T) {
	asked, release := make(chan *agentapi.DeregisterRequest, 1), make(chan struct{})
	s, ads := startReady(t, func(_ context.Context, q *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		asked <- q
		<-release
		return &agentapi.DeregisterResponse{ACKed: 12}, nil
	}, func(c *Config) { c.DrainTime = ptr(time.Hour) })
	s.cancel()
	q := await.From(t, asked)
	require.Equal(t, "sidecar~"+s.ip+"~app-1.shop~shop.svc.cluster.local", q.Node)
	require.Equal(t, []string{s.ip}, q.Addresses)
	require.Equal(t, ads.seenNodes()[0].Metadata.Fields[agentapi.MetaInstance].GetStringValue(), q.Instance)
	require.NotEmpty(t, q.Instance)
	require.Positive(t, q.WaitMillis)
	_, body := s.get(DefaultHealthPort, "/healthz/ready")
	require.Equal(t, "the sidecar is draining\n", body)
	require.NotContains(t, s.log.String(), "msg=draining")
	close(release)
	require.NoError(t, s.ended())
	require.Regexp(t, `level=INFO msg="deregistered: 12 proxies ACKed in \d`, s.log.String())
	require.Contains(t, s.log.String(), `msg=draining "at least"=0s "at most"=1h0m0s`)
}

// TestDrainsFullyUnlessAllProxiesACK checks that the drain takes its full time if a proxy may still call the workload.
func TestDrainsFullyUnlessAllProxiesACK(t *testing.T) {
	lacking := &agentapi.DeregisterResponse{ACKed: 3, LackCount: 2}
	lacking.Lacking = append(lacking.Lacking, agentapi.LackingProxy{Proxy: "slow-1.shop", Position: "behind", Reason: "unread EDS"})
	for name, tc := range map[string]struct {
		answer  deregisterHandler
		timeout time.Duration
		logs    string
	}{
		"a proxy lacks it": {func(context.Context, *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
			return lacking, nil
		}, patience,
			"2 did not: slow-1.shop (behind: unread EDS), 1 more; the workload drains for at least 100ms"},
		"another control plane": {nil, patience, "unknown service moonsail.v1.Workload; the workload drains for at least"},
		"refused": {func(context.Context, *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
			return nil, status.Error(codes.FailedPrecondition, "another instance is connected")
		}, patience, "another instance is connected; the workload drains"},
		"no answer": {func(ctx context.Context, _ *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 50 * time.Millisecond, "deregistration failed after"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := startReady(t, tc.answer, func(c *Config) { c.LeaveTimeout = &tc.timeout })
			s.cancel()
			require.NoError(t, s.ended())
			require.Contains(t, s.log.String(), tc.logs)
			require.Contains(t, s.log.String(), "level=WARN msg=\"deregist")
			require.Contains(t, s.log.String(), `msg=draining "at least"=100ms`)
		})
	}
}

// TestDeregistersAgainAfterARestart checks that the agent retries when the control plane restarts before it answers.
func TestDeregistersAgainAfterARestart(t *testing.T) {
	var asked atomic.Int32
	gone := make(chan struct{})
	deregister := func(ctx context.Context, _ *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		if asked.Add(1) == 1 {
			close(gone)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &agentapi.DeregisterResponse{ACKed: 1}, nil
	}
	s, ads := startReady(t, deregister, nil)
	s.cancel()
	await.From(t, gone)
	ads.stop()
	ads.serve(t, ads.address, nil)
	require.NoError(t, s.ended())
	require.Contains(t, s.log.String(), "deregistered: 1 proxy ACKed")
}

// TestAbortEndsADeregistration checks that a second signal, and a request to quit, end the wait.
func TestAbortEndsADeregistration(t *testing.T) {
	asked := make(chan struct{}, 2)
	never := func(ctx context.Context, _ *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s, _ := startReady(t, never, nil)
	s.cancel()
	await.From(t, asked)
	close(s.abort)
	require.ErrorIs(t, s.ended(), ErrForced)

	s, _ = startReady(t, never, nil)
	drained := make(chan int, 1)
	go func() { drained <- s.post(DrainPath) }() // as a preStop command
	await.From(t, asked)
	s.cancel()
	close(s.abort)
	require.ErrorIs(t, s.ended(), ErrForced)
	require.Equal(t, http.StatusGatewayTimeout, await.From(t, drained))

	s, _ = startReady(t, never, nil)
	s.cancel()
	await.From(t, asked)
	require.Equal(t, http.StatusOK, s.post("/quitquitquit"))
	require.NoError(t, s.ended())
}

// post sends a request to the status port.
func (s *sidecar) post(path string) int {
	s.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Post("http://"+net.JoinHostPort(s.ip, strconv.Itoa(DefaultStatusPort))+path, "", nil)
	require.NoError(s.t, err)
	defer res.Body.Close()
	return res.StatusCode
}

// TestHoldsAContainer checks that the preStop hook of a container is answered only when every proxy has ACKed.
func TestHoldsAContainer(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	s, _ := startReady(t, func(context.Context, *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		asked <- struct{}{}
		<-release
		return &agentapi.DeregisterResponse{ACKed: 2}, nil
	}, func(c *Config) { c.StayReady = true })
	held := make(chan int, 1)
	go func() {
		status, _ := s.get(DefaultStatusPort, "/app-lifecycle/app/prestopz")
		held <- status
	}()
	drained := make(chan int, 1)
	go func() { drained <- s.post(DrainPath) }()
	await.From(t, asked)
	require.Empty(t, held)
	status, _ := s.get(DefaultHealthPort, "/healthz/ready")
	require.Equal(t, http.StatusOK, status, "a kubelet reports each probe that fails while a Pod ends")
	close(release)
	require.Equal(t, http.StatusOK, await.From(t, held))
	require.Equal(t, http.StatusOK, await.From(t, drained))
	status, _ = s.get(DefaultStatusPort, "/app-lifecycle/app/prestopz")
	require.Equal(t, http.StatusOK, status, "a later hook is answered as well")
	s.cancel()
	require.NoError(t, s.ended())
}

// TestHooksEndBeforeTheSidecar checks that a preStop hook of an application is not cut short by the end of a classic sidecar, which
// gets SIGTERM at the same time.
func TestHooksEndBeforeTheSidecar(t *testing.T) {
	ip, entered, release := ownIP(), make(chan struct{}), make(chan struct{})
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	app := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		select {
		case <-release:
		case <-r.Context().Done():
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}}
	app.Start()
	t.Cleanup(app.Close)
	t.Setenv(appprobe.ProbersVariable, fmt.Sprintf(`{"/app-lifecycle/app/prestopz/key":{"httpGet":{"port":%d}},"/app-lifecycle/sleeps/prestopz":{"sleep":{"seconds":1}}}`,
		l.Addr().(*net.TCPAddr).Port))
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	log := &logtext.Buffer{}
	s := startSidecar(t, ip, ads.address, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s.awaitReady()
	hook, sleep, start := make(chan int, 1), make(chan time.Duration, 1), time.Now()
	go func() {
		status, _ := s.get(DefaultStatusPort, "/app-lifecycle/app/prestopz/key")
		hook <- status
	}()
	go func() {
		s.get(DefaultStatusPort, "/app-lifecycle/sleeps/prestopz")
		sleep <- time.Since(start)
	}()
	s.await("the hooks", func() bool { return strings.Count(log.String(), "preStop hook begins") == 2 })
	s.cancel()
	await.From(t, entered)
	require.GreaterOrEqual(t, await.From(t, sleep), time.Second)
	s.await("the wait for hooks", func() bool {
		select {
		case <-s.done:
			return true
		default:
			return strings.Contains(log.String(), "waiting for preStop hooks")
		}
	})
	close(release)
	require.Equal(t, http.StatusOK, await.From(t, hook))
	require.NoError(t, s.ended())
}

// TestHoldsNoContainerForever checks that a hook is answered although no drain starts, and starts none.
func TestHoldsNoContainerForever(t *testing.T) {
	s, _ := startReady(t, nil, nil)
	status, _ := s.get(DefaultStatusPort, "/app-lifecycle/app/prestopz")
	require.Equal(t, http.StatusOK, status)
	status, _ = s.get(DefaultHealthPort, "/healthz/ready")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, s.log.String(), "deregist")
	s.cancel()
	require.NoError(t, s.ended())
}

// TestDrainOnRequest checks that the sidecar runs on after a preStop command, and does not deregister again at its end.
func TestDrainOnRequest(t *testing.T) {
	var asked atomic.Int32
	s, _ := startReady(t, func(context.Context, *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		asked.Add(1)
		return &agentapi.DeregisterResponse{ACKed: 2}, nil
	}, nil)
	require.Equal(t, http.StatusOK, s.post(DrainPath))
	require.Equal(t, http.StatusOK, s.post(DrainPath))
	_, body := s.get(DefaultHealthPort, "/healthz/ready")
	require.Equal(t, "the sidecar is draining\n", body)
	s.cancel()
	require.NoError(t, s.ended())
	require.Equal(t, int32(1), asked.Load())
}

// TestRepeatsTheDeregistration checks that a drained workload repeats its deregistration, for control planes that started
// later.
func TestRepeatsTheDeregistration(t *testing.T) {
	var asked atomic.Int32
	again := make(chan struct{})
	s, _ := startReady(t, func(_ context.Context, q *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		if asked.Add(1) == 3 {
			close(again)
		}
		return &agentapi.DeregisterResponse{ACKed: 1}, nil
	}, func(c *Config) { c.Reannounce, c.MinDrain, c.DrainTime = time.Millisecond, time.Hour, ptr(time.Hour) })
	s.cancel()
	await.From(t, again)
	close(s.abort)
	require.ErrorIs(t, s.ended(), ErrForced)
}
