package agent

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// calls sends one request after the other until stop.
type calls struct {
	n        atomic.Int64
	failures []string // read after stop
	stop     func()
}

// startCalls starts calls. It adds why() to each failure.
func startCalls(t *testing.T, url string, why func() string) *calls {
	t.Helper()
	c, quit, done := &calls{}, make(chan struct{}), make(chan struct{})
	client := &http.Client{Timeout: patience, Transport: &http.Transport{}}
	go func() {
		defer close(done)
		defer client.CloseIdleConnections()
		for {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if err := one(client, url); err != nil {
				c.failures = append(c.failures, err.Error()+why())
			}
			c.n.Add(1)
		}
	}()
	c.stop = sync.OnceFunc(func() { close(quit); <-done })
	t.Cleanup(c.stop)
	return c
}

func one(client *http.Client, url string) error {
	res, err := client.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s, then %w", res.Status, err)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", res.Status, body)
	}
	return nil
}
