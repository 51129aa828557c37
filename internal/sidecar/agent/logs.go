package agent

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// envoyLogFormat is what forwarder takes apart: level, logger, message.
const envoyLogFormat = "%l\t%n\t%v"

// Bounds of what is kept of Envoy's output.
const (
	maxLogLine = 16 << 10 // bytes; longer lines are cut into several
	tailLines  = 20
)

// forwarder turns Envoy's output into records of the agent's log, and remembers the
// last lines for the error that a failed start becomes.
type forwarder struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex // guards what follows; Envoy's output and tail may be concurrent
	partial []byte
	level   slog.Level // of the last line with one; lines without one continue it
	tail    []string
	away    time.Time // when it was last told that the control plane is away
}

func newForwarder(log *slog.Logger) *forwarder {
	return &forwarder{log: log, level: slog.LevelWarn, now: time.Now}
}

// awayEvery is how often it is told that the control plane is away. Envoy says so with each attempt to
// connect, which is each second.
const awayEvery = time.Minute

// Write implements io.Writer; it never fails.
func (f *forwarder) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.partial = append(f.partial, p...)
	for {
		line, rest, ok := bytes.Cut(f.partial, []byte("\n"))
		if !ok && len(f.partial) < maxLogLine {
			return len(p), nil
		}
		if !ok {
			line, rest = f.partial[:maxLogLine], f.partial[maxLogLine:]
		}
		f.emit(strings.TrimRight(string(line), "\r"))
		f.partial = append([]byte(nil), rest...)
	}
}

// flush emits an unfinished last line, once Envoy has ended.
func (f *forwarder) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.partial) > 0 {
		f.emit(string(f.partial))
		f.partial = nil
	}
}

func (f *forwarder) emit(line string) {
	if line == "" {
		return
	}
	logger, message := "", line
	if parts := strings.SplitN(line, "\t", 3); len(parts) == 3 {
		if level, ok := envoyLevels[parts[0]]; ok {
			f.level, logger, message = level, parts[1], parts[2]
		}
	}
	level := f.level
	if message == "caught ENVOY_SIGTERM" || f.saidAway(message) {
		level = slog.LevelDebug // Envoy warns of what the agent ordered, or of what it has warned of
	}
	if f.tail = append(f.tail, message); len(f.tail) > tailLines {
		f.tail = f.tail[1:]
	}
	f.log.Log(context.Background(), level, message, "envoy", orDefault(logger, "output"))
}

// saidAway tells whether a message is that the control plane is away still, and was told a moment ago; f.mu is
// held.
func (f *forwarder) saidAway(message string) bool {
	if !strings.Contains(message, " gRPC config stream to ") || !strings.Contains(message, " closed since ") {
		return false
	}
	now := f.now()
	if !f.away.IsZero() && now.Sub(f.away) < awayEvery {
		return true
	}
	f.away = now
	return false
}

// last is what Envoy said last, one line each.
func (f *forwarder) last() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.tail...)
}

// said tells whether the last lines contain text.
func (f *forwarder) said(text string) bool {
	return slices.ContainsFunc(f.last(), func(line string) bool { return strings.Contains(line, text) })
}

// envoyLevels: Envoy's words and ours. What the agent's own level hides stays hidden.
var envoyLevels = map[string]slog.Level{
	"trace":    slog.LevelDebug - 4,
	"debug":    slog.LevelDebug,
	"info":     slog.LevelInfo,
	"warning":  slog.LevelWarn,
	"error":    slog.LevelError,
	"critical": slog.LevelError + 4,
}
