package spelling

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"timout", "timeout"}, {"time_out", "timeout"}, {"TIMEOUT", "timeout"}, {"hsot", "host"}, {"wieght", "weight"},
		{"completely", ""}, {"", ""},
	} {
		require.Equal(t, tc.want, Nearest(tc.name, []string{"weight", "timeout", "host", "route"}), tc.name)
	}
}
