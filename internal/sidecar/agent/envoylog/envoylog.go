// Package envoylog turns Envoy's output into records of the agent's log.
package envoylog

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Format is the --log-format of Envoy that a Forwarder decodes: level, logger, message.
const Format = "%l\t%n\t%v"

const (
	maxLine   = 16 << 10 // bytes; a Forwarder splits longer lines
	tailLines = 20
)

// Forwarder writes Envoy's output to a log, and keeps the last lines, which explain why Envoy did not start.
type Forwarder struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex // guards the fields below
	partial []byte
	level   slog.Level // of the last line with a level; a line without one continues that line
	tail    []string
	away    time.Time // of the last record that the control plane is unreachable
	ending  bool      // Envoy has received SIGTERM
}

// New returns a Forwarder to log.
func New(log *slog.Logger) *Forwarder {
	return &Forwarder{log: log, level: slog.LevelWarn, now: time.Now}
}

// awayEvery is how often the log repeats that the control plane is unreachable. Envoy reports it with each attempt to
// connect, about once a second.
const awayEvery = time.Minute

// Write implements io.Writer; it never fails.
func (f *Forwarder) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.partial = append(f.partial, p...)
	for {
		line, rest, ok := bytes.Cut(f.partial, []byte("\n"))
		if !ok && len(f.partial) < maxLine {
			return len(p), nil
		}
		if !ok {
			line, rest = f.partial[:maxLine], f.partial[maxLine:]
		}
		f.emit(strings.TrimRight(string(line), "\r"))
		f.partial = append([]byte(nil), rest...)
	}
}

// Flush logs an unfinished last line. Call it after Envoy has ended.
func (f *Forwarder) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.partial) > 0 {
		f.emit(string(f.partial))
		f.partial = nil
	}
}

func (f *Forwarder) emit(line string) {
	if line == "" {
		return
	}
	logger, message := "", line
	if parts := strings.SplitN(line, "\t", 3); len(parts) == 3 {
		if level, ok := envoyLevels[parts[0]]; ok {
			f.level, logger, message = level, parts[1], parts[2]
		}
	}
	f.ending = f.ending || message == "caught ENVOY_SIGTERM"
	level := f.level
	if message == "caught ENVOY_SIGTERM" || f.ending && strings.Contains(message, configStream) || f.repeatsAway(message) {
		level = slog.LevelDebug // a warning about the agent's own signal, or a repeated one
	}
	if f.tail = append(f.tail, message); len(f.tail) > tailLines {
		f.tail = f.tail[1:]
	}
	f.log.Log(context.Background(), level, message, "envoy", cmp.Or(logger, "output"))
}

// configStream is a part of Envoy's messages about the end of a stream of configuration or secrets.
const configStream = " gRPC config stream to "

// repeatsAway reports whether a message only repeats, within awayEvery, that the control plane is unreachable. f.mu is
// held.
func (f *Forwarder) repeatsAway(message string) bool {
	if !strings.Contains(message, configStream) || !strings.Contains(message, " closed since ") {
		return false
	}
	now := f.now()
	if !f.away.IsZero() && now.Sub(f.away) < awayEvery {
		return true
	}
	f.away = now
	return false
}

// Last returns the messages of the last lines.
func (f *Forwarder) Last() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.tail...)
}

// Contains reports whether one of the last lines contains text.
func (f *Forwarder) Contains(text string) bool {
	return slices.ContainsFunc(f.Last(), func(line string) bool { return strings.Contains(line, text) })
}

// envoyLevels maps Envoy's levels to the agent's. The agent's level filters them as it does its own records.
var envoyLevels = map[string]slog.Level{
	"trace":    slog.LevelDebug - 4,
	"debug":    slog.LevelDebug,
	"info":     slog.LevelInfo,
	"warning":  slog.LevelWarn,
	"error":    slog.LevelError,
	"critical": slog.LevelError + 4,
}
