package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
)

// application answers a request once released, and signals when it has one.
type application struct {
	server  *httptest.Server
	entered chan struct{}
	release chan struct{}
}

func startApplication(t *testing.T) *application {
	t.Helper()
	a := &application{entered: make(chan struct{}, 1), release: make(chan struct{})}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.entered <- struct{}{}
		select {
		case <-a.release:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		a.server.CloseClientConnections() // otherwise Close would wait for requests that are not released
		a.server.Close()
	})
	return a
}

type answer struct {
	status int
	body   string
	closed bool // the answer asked to close the connection
	err    error
}

// request sends one HTTP request through the sidecar, and returns when the application has it.
func request(s *sidecar, app *application, port string) <-chan answer {
	s.t.Helper()
	answers := make(chan answer, 1)
	transport := &http.Transport{}
	go func() {
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get("http://" + net.JoinHostPort(s.ip, port))
		if err != nil {
			answers <- answer{err: err}
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		answers <- answer{status: res.StatusCode, body: string(body), closed: res.Close, err: err}
	}()
	select {
	case <-app.entered:
	case a := <-answers:
		s.t.Fatalf("the request did not reach the application: %+v", a)
	case <-time.After(patience):
		s.t.Fatal("the request did not reach the application")
	}
	return answers
}

const appPort = 18080

func startHeldRequest(t *testing.T, drainTime time.Duration) (*sidecar, *application, <-chan answer) {
	t.Helper()
	app, ip := startApplication(t), ownIP()
	listeners, clusters := httpRoute(t, ip, appPort, app.server.Listener.Addr())
	ads := startADS(t, listeners, clusters, nil)
	close(ads.open)
	s := startSidecar(t, ip, ads.address, func(c *Config) { c.DrainTime = ptr(drainTime) })
	s.awaitReady()
	return s, app, request(s, app, "18080")
}

// TestDrainEndsWithTheLastConnection has a drain time of an hour: only the end of the last connection can end the drain.
func TestDrainEndsWithTheLastConnection(t *testing.T) {
	s, app, answers := startHeldRequest(t, time.Hour)
	s.cancel()
	admin := envoy.NewAdmin(net.JoinHostPort(s.ip, "15000"))
	defer admin.Close()
	s.await("Envoy to drain", func() bool {
		info, err := admin.ServerInfo(context.Background())
		return err == nil && info.State == "DRAINING"
	})
	status, body := s.get(DefaultHealthPort, "/healthz/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "the sidecar is draining\n", body)
	close(app.release)
	got := await.From(t, answers)
	require.NoError(t, got.err)
	require.Equal(t, answer{status: http.StatusOK, body: "done", closed: true}, got)
	require.NoError(t, s.ended())
}

// TestFullDrain checks that a sidecar without connections drains for the whole drain time: its application may still run.
func TestFullDrain(t *testing.T) {
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	s := startSidecar(t, ownIP(), ads.address, func(c *Config) { c.FullDrain, c.DrainTime = true, ptr(time.Hour) })
	s.awaitReady()
	s.cancel()
	s.await("the drain", func() bool { return strings.Contains(s.log.String(), `msg=draining "at least"=1h0m0s`) })
	close(s.abort)
	require.ErrorIs(t, s.ended(), ErrForced)
}

func TestDrainTimeEnds(t *testing.T) {
	s, _, answers := startHeldRequest(t, 50*time.Millisecond)
	s.cancel()
	require.NoError(t, s.ended())
	require.Error(t, await.From(t, answers).err, "the application never answered")
	require.Contains(t, s.log.String(), `msg="drain time is over; the remaining connections are closed"`)
	require.Contains(t, s.log.String(), "connections=1")
}

func TestAbortEndsADrain(t *testing.T) {
	s, _, answers := startHeldRequest(t, time.Hour)
	pid := s.awaitPid(1)
	s.cancel()
	s.await("the drain", func() bool {
		_, body := s.get(DefaultHealthPort, "/healthz/ready")
		return body == "the sidecar is draining\n"
	})
	close(s.abort)
	require.ErrorIs(t, s.ended(), ErrForced)
	require.Error(t, await.From(t, answers).err)
	require.False(t, alive(pid))
}

func TestQuitQuitQuit(t *testing.T) {
	s, _, answers := startHeldRequest(t, time.Hour)
	res, err := http.Post("http://"+net.JoinHostPort(s.ip, "15020")+"/quitquitquit", "", nil)
	require.NoError(t, err)
	res.Body.Close()
	require.NoError(t, s.ended())
	require.Error(t, await.From(t, answers).err)
	http.DefaultClient.CloseIdleConnections()
}

func TestActiveConnections(t *testing.T) {
	require.Equal(t, 7, activeConnections(map[string]uint64{
		"listener.127.0.10.3_15006.downstream_cx_active":          3,
		"listener.127.0.10.3_15006.worker_0.downstream_cx_active": 2,
		"listener.127.0.10.3_15006.worker_1.downstream_cx_active": 1,
		"listener.0.0.0.0_9080.downstream_cx_active":              4,
		"listener.admin.downstream_cx_active":                     1,
		"listener.admin.main_thread.downstream_cx_active":         1,
		"listener.stats.downstream_cx_active":                     1,
		"listener.stats.worker_0.downstream_cx_active":            1,
		"listener.envoy_internal_x.downstream_cx_active":          1,
	}))
	require.Zero(t, activeConnections(nil))
}
