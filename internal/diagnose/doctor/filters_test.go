package doctor_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/doctor"
)

// TestFiltersThatCannotBeRead checks that only Envoy's "not found" counts as an Envoy without filters.
func TestFiltersThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		dump    http.HandlerFunc
		unknown bool
	}{
		"none": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "ecds_filters not found in config dump", http.StatusNotFound)
		}, false},
		"overload": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, true},
		"reset":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/config_dump", c.dump)
			mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
			s := httptest.NewServer(mux)
			t.Cleanup(s.Close)
			e, err := doctor.Collect(t.Context(), doctor.Options{Sidecars: []string{strings.TrimPrefix(s.URL, "http://")}})
			require.NoError(t, err)
			require.Len(t, e.Sidecars, 1)
			require.Equal(t, c.unknown, e.Sidecars[0].NoFilters != "")
			found := proxyFindings(e.Sidecars[0])
			f, ok := found["filters"]
			require.Equal(t, c.unknown, ok, found)
			if c.unknown {
				require.Equal(t, doctor.Unknown, f.Severity)
			}
		})
	}
}
