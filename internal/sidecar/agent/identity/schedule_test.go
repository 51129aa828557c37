package identity

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedule(t *testing.T) {
	now := time.Now()
	seen := map[time.Duration]bool{}
	for range 1000 {
		wait := renewal(now, now.Add(100*time.Hour), DefaultGraceRatio)
		require.GreaterOrEqual(t, wait, 45*time.Hour)
		require.LessOrEqual(t, wait, 55*time.Hour+time.Nanosecond)
		seen[wait] = true
	}
	require.Greater(t, len(seen), 900, "spread over time")
	require.Zero(t, renewal(now, now.Add(-time.Second), DefaultGraceRatio))
	require.InDelta(t, time.Hour, renewal(now, now.Add(100*time.Hour), 0.99), float64(6*time.Minute+time.Second), "99 % is left")
	require.InDelta(t, 99*time.Hour, renewal(now, now.Add(100*time.Hour), 0.01), float64(6*time.Minute+time.Second), "1 % is left")
	var b backoff
	for i, most := range []time.Duration{200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		wait := b.wait(maxRetry)
		require.LessOrEqual(t, wait, most*time.Millisecond, i)
		require.GreaterOrEqual(t, wait, most*time.Millisecond/2, i)
	}
	empty := &Secrets{}
	require.Equal(t, maxRetry, empty.retryBound(now))
}

func TestUnite(t *testing.T) {
	a, b := root(t, "a"), root(t, "b")
	require.Equal(t, string(a.PEM())+string(b.PEM()), string(unite([]byte("x"), append([]byte("# comment\n"), a.PEM()...), nil, append(b.PEM(), a.PEM()...))))
	require.Empty(t, unite(nil))
	require.Error(t, (&Secrets{pool: x509.NewCertPool()}).verifyServer(nil, []string{"x"}))
}
