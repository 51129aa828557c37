package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// Logging is --log-level and --log-format, of the commands that run for long.
type Logging struct {
	level  slog.Level
	format string
}

// AddFlags adds the flags to cmd.
func (l *Logging) AddFlags(cmd *cobra.Command) {
	cmd.Flags().TextVar(&l.level, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn or error")
	cmd.Flags().StringVar(&l.format, "log-format", "text", "`FORMAT` of log lines: text or json")
}

// Logger writes to w, usually standard error.
func (l *Logging) Logger(w io.Writer) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: l.level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, usageError{fmt.Errorf("unknown --log-format %q: it is text or json", l.format)}
}
