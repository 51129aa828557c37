package httpserve_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/base/httpserve"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a running server whose requests wait for release.
type server struct {
	url              string
	entered, release chan struct{}
	stop             context.CancelFunc
	ended            chan error
	ln               net.Listener
}

func start(t *testing.T, grace time.Duration) *server {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s := &server{
		url: "http://" + ln.Addr().String(), entered: make(chan struct{}), release: make(chan struct{}), stop: cancel,
		ended: make(chan error, 1), ln: ln,
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.entered <- struct{}{}
		select {
		case <-s.release:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	go func() {
		s.ended <- httpserve.Serve(ctx, &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}, ln, grace)
	}()
	return s
}

// get sends a request, and returns its result when it has one.
func (s *server) get(t *testing.T) <-chan error {
	result := make(chan error, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		resp, err := client.Get(s.url)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		result <- err
	}()
	await.From(t, s.entered)
	return result
}

func TestRequestsInProgressFinish(t *testing.T) {
	s := start(t, time.Minute)
	result := s.get(t)
	s.stop()
	close(s.release)
	require.NoError(t, await.From(t, result))
	require.NoError(t, await.From(t, s.ended))
}

func TestRequestsAreCutOffAfterTheGrace(t *testing.T) {
	s := start(t, time.Millisecond)
	result := s.get(t)
	s.stop()
	require.Error(t, await.From(t, result))
	require.NoError(t, await.From(t, s.ended))
}

func TestFailedListenerIsAnError(t *testing.T) {
	s := start(t, time.Minute)
	require.NoError(t, s.ln.Close())
	require.ErrorIs(t, await.From(t, s.ended), net.ErrClosed)
}

func TestEndedContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, httpserve.Serve(ctx, &http.Server{ReadHeaderTimeout: time.Minute}, ln, time.Minute))
	_, err = net.Dial("tcp", ln.Addr().String())
	require.Error(t, err, "the listener is closed")
}
