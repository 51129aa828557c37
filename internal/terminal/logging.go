package terminal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// Logging holds --log-level and --log-format of commands that run until they are stopped.
type Logging struct {
	level  logLevel
	format string
}

// logLevel names the valid levels in its errors.
type logLevel struct{ slog.Level }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *logLevel) UnmarshalText(text []byte) error {
	if l.Level.UnmarshalText(text) != nil {
		return errors.New("unknown level: use debug, info, warn or error")
	}
	return nil
}

// AddFlags adds the flags to cmd.
func (l *Logging) AddFlags(cmd *cobra.Command) {
	cmd.Flags().TextVar(&l.level, "log-level", logLevel{slog.LevelInfo}, "lowest `LEVEL` to log: debug, info, warn or error")
	cmd.Flags().StringVar(&l.format, "log-format", "text", "`FORMAT` of log lines: text or json")
	Offer(cmd, "log-level", "debug", "info", "warn", "error")
	Offer(cmd, "log-format", "text", "json")
}

// Logger returns a logger to w, usually standard error.
func (l *Logging) Logger(w io.Writer) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: l.level.Level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, UsageError{Err: fmt.Errorf("--log-format %q: unknown format: use text or json", l.format)}
}
