package chaos

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// TestCrash starts processes that end by themselves, and others that are ended.
func TestCrash(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		end          func(*part)
		want         string // of the error; empty: it did not crash
	}{
		{"ends by itself", "echo the cause >&2; exit 3", func(p *part) { <-p.process.Done() }, "crash: ended (exit status 3):\nthe cause"},
		{"ends by itself before it is killed", "exit 0", func(p *part) { <-p.process.Done(); p.kill() }, "crash: ended (exit status 0):\n"},
		{"is killed", "exec sleep 100", (*part).kill, ""},
		{"is stopped", "exec sleep 100", func(p *part) { p.end(func(process *child.Process) { process.Stop(stopTime) }) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log, err := os.Create(filepath.Join(t.TempDir(), "log"))
			require.NoError(t, err)
			defer log.Close()
			found := ""
			p := &part{name: "crash", argv: []string{"sh", "-c", tt.script}, log: log, watched: &sync.WaitGroup{}}
			p.crashed = func(name string, err error) { found = err.Error() }
			require.NoError(t, p.start())
			tt.end(p)
			p.watched.Wait()
			require.Equal(t, tt.want, found)
		})
	}
}

// TestPanicsInLogs reads what control planes log about panics that they survive.
func TestPanicsInLogs(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       bool
	}{
		{"webhook", `{"level":"ERROR","msg":"panic in a webhook","webhook":"injection"}`, true},
		{"gateway", `{"level":"ERROR","msg":"panic while a gateway is deployed"}`, true},
		{"page", `{"level":"ERROR","msg":"debug page failed","path":"/debug/ca","panic":"index out of range"}`, true},
		{"document", `{"level":"WARN","msg":"a.yaml:1: cannot be read: internal error: index out of range; report this bug with the document"}`, true},
		{"goroutine", "panic: runtime error: index out of range", false}, // the process ends, which is found by itself
		{"other", `{"level":"INFO","msg":"serving xDS"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &run{options: &Options{Dir: t.TempDir()}, mesh: &processes{}}
			dir := r.options.logs("")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "control-plane-1.log"), []byte(tt.line+"\n"), 0o600))
			require.NoError(t, r.readLogs())
			require.Equal(t, tt.want, len(r.violations) == 1)
		})
	}
}
