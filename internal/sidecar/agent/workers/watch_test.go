package workers

import (
	"testing"

	"github.com/moonsail/moonsail/test/await"
)

// TestReportDoesNotDelayEnvoy checks that Runs does not wait for a report that is being made.
func TestReportDoesNotDelayEnvoy(t *testing.T) {
	w := &Watch{}
	w.mu.Lock()
	defer w.mu.Unlock()
	await.End(t, func() { w.Runs(1) })
}
