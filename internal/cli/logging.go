package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
)

// Logging is --log-level and --log-format, of the commands that run for long.
type Logging struct {
	level  logLevel
	format string
}

// logLevel says in its errors which there are.
type logLevel struct{ slog.Level }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *logLevel) UnmarshalText(text []byte) error {
	if l.Level.UnmarshalText(text) != nil {
		return errors.New("it is one of debug, info, warn, error")
	}
	return nil
}

// AddFlags adds the flags to cmd.
func (l *Logging) AddFlags(cmd *cobra.Command) {
	cmd.Flags().TextVar(&l.level, "log-level", logLevel{slog.LevelInfo}, "least `LEVEL` that is logged: debug, info, warn or error")
	cmd.Flags().StringVar(&l.format, "log-format", "text", "`FORMAT` of log lines: text or json")
	terminal.Offer(cmd, "log-level", "debug", "info", "warn", "error")
	terminal.Offer(cmd, "log-format", "text", "json")
}

// Logger writes to w, usually standard error.
func (l *Logging) Logger(w io.Writer) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: l.level.Level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, terminal.UsageError{Err: fmt.Errorf("unknown --log-format %q: it is text or json", l.format)}
}
