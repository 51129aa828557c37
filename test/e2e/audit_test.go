package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAudit checks that requests that a policy of action AUDIT matches pass, and are marked in Envoy's metadata, which
// access logs can print.
func TestAudit(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	g := startGuarded(t, fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    accessLogFile: %s
    accessLogFormat: "%%REQ(:PATH)%% %%DYNAMIC_METADATA(envoy.common:access_log_hint)%%\n"`, log))
	g.given(authorization("audit", "{action: AUDIT, rules: [{to: [{operation: {paths: [/watched]}}]}]}"))
	var lines []string
	logged := func(want string) func() bool {
		return func() bool {
			path, _, _ := strings.Cut(want, " ")
			g.requireStatus(200, "GET", path)
			text, _ := os.ReadFile(log)
			lines = strings.Split(string(text), "\n")
			return slices.Contains(lines, want)
		}
	}
	for _, want := range []string{"/watched true", "/other false"} {
		eventually(t, want+" is logged", logged(want), func() string { return strings.Join(lines, "\n") })
	}
}
