package server

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// meter records its calls.
type meter struct {
	unmetered
	mu        sync.Mutex // guards the fields
	pushed    []string
	queued    int
	took      int
	delivered int
}

func (m *meter) Pushed(t resource.Type, _ int, whole bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pushed = append(m.pushed, fmt.Sprint(t, " ", whole))
}

func (m *meter) Queued(time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queued++
}

func (m *meter) Took(resource.Type, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took++
}

func (m *meter) Delivered(time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delivered++
}

func TestPushesAreMetered(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		m := &meter{}
		h := newHarness(t, on, Options{Meter: m})
		c := h.warm("")
		h.commit(endpoints("c1", "2"))
		c.take(resource.Endpoints, "c1")
		h.eventually("all is counted", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.took == 4 && m.delivered == 4 && m.queued == 1
		})
		require.Equal(t, []string{"CDS true", "EDS true", "LDS true", "EDS false"}, m.pushed)
	})
}
