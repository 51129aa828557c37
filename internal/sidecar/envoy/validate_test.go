package envoy

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestValidated checks that a crash does not count after Envoy has accepted the configuration. One before, or with another
// file, does.
func TestValidated(t *testing.T) {
	crash := errors.New("signal: segmentation fault")
	for _, tc := range []struct {
		out   string
		ended error
		want  bool
	}{
		{"configuration '/a.json' OK\n", nil, true},
		{"warning\nconfiguration '/a.json' OK\nbacktrace\n", crash, true},
		{"backtrace\n", crash, false},
		{"configuration '/b.json' OK\n", crash, false},
		{"error initializing configuration '/a.json': no such file\n", errors.New("exit status 1"), false},
	} {
		require.Equal(t, tc.want, Validated([]byte(tc.out), tc.ended, "/a.json"), "%q", tc.out)
	}
}
