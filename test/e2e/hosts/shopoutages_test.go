//go:build linux

package hosts

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// losePlane kills the control plane for long enough that no certificate is renewed. Meanwhile an Envoy crashes, and the
// control plane is not there to configure its successor. After the control plane is back, all must be configured and
// changes must apply.
func (m *shopMesh) losePlane(t *testing.T, l *load) {
	t.Helper()
	require.NoError(t, m.plane.cmd.Process.Kill())
	await.From(t, m.plane.done)
	m.each("the authority is missed", func(w *member) error {
		st, err := w.identity()
		if err == nil && st.Attempts == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	m.write("policy.yaml", principals("frontend", "cart", "shopper"))
	l.requireNoneLost("the control plane is away")
	died := m.of("ratings")[0]
	had := len(died.envoys(t))
	m.crash(t, died)
	l.more(20)
	l.requireNoneLost("an Envoy dies meanwhile")
	require.Len(t, died.envoys(t), had, "the next one waits to be configured")
	m.startPlane()
	m.awaitEnvoy(t, died, had+1)
	m.requireCatalogAnswers(http.StatusOK)
	m.each("a certificate again", func(w *member) error {
		st, err := w.identity()
		if err == nil && st.Problem != "" {
			err = errors.New(st.Problem)
		}
		return err
	})
}

// killEnvoy kills an Envoy, and waits for its successor.
func (m *shopMesh) killEnvoy(t *testing.T, w *member) (from, to time.Time) {
	t.Helper()
	had := len(w.envoys(t))
	from, to = m.crash(t, w)
	m.awaitEnvoy(t, w, had+1)
	return from, to
}

// awaitEnvoy waits until n Envoys of a member have become ready, one after the other.
func (m *shopMesh) awaitEnvoy(t *testing.T, w *member, n int) {
	t.Helper()
	eventually(t, "another Envoy of "+w.name, func() error {
		if len(w.envoys(t)) < n {
			return errors.New("there is none")
		}
		return nil
	})
}

// crash kills an Envoy. It died between the returned times: at the second one the kernel had closed its connections.
func (m *shopMesh) crash(t *testing.T, w *member) (from, to time.Time) {
	t.Helper()
	envoys := w.envoys(t)
	pid := envoys[len(envoys)-1]
	from = time.Now()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, "the Envoy is gone", func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("it is there: signalling it gave %v", err) //nolint:errorlint // none is an error here, too
		}
		return nil
	})
	return from, time.Now()
}
