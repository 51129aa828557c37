package gatewaydeploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPortNamesAreDistinct checks names of listeners whose ports want the same name.
func TestPortNamesAreDistinct(t *testing.T) {
	long := strings.Repeat("a", 253)
	rows := map[string][]listener{
		"one name, many ports": nil,
		"dots":                 {{"a.b", 80, "HTTP"}, {"a-b", 81, "HTTP"}, {"a-b-81", 82, "HTTP"}},
		"nothing is left":      {{"...", 80, "HTTP"}, {"..", 81, "HTTP"}},
		"of the status":        {{"status-port", 80, "HTTP"}, {"status.port", 81, "HTTP"}},
	}
	for i := range 2000 {
		rows["one name, many ports"] = append(rows["one name, many ports"], listener{long, int32(i + 1), "TCP"})
	}
	// Each name of a listener is what the next one would get.
	taken := []listener{{"x", 9, "TCP"}, {"x", 10, "TCP"}}
	for i, suffix := 0, "-9"; i < 70; i, suffix = i+1, suffix+"x" {
		taken = append([]listener{{"x" + suffix, int32(100 + i), "TCP"}, {suffix[1:], int32(300 + i), "TCP"}}, taken...)
	}
	rows["all suffixes"] = taken
	for name, listeners := range rows {
		t.Run(name, func(t *testing.T) {
			names := map[string]bool{}
			for _, p := range servicePorts(listeners) {
				require.False(t, names[p.Name], p.Name)
				names[p.Name] = true
				require.Regexp(t, `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, p.Name)
			}
			require.Len(t, names, len(listeners)+1)
		})
	}
}
