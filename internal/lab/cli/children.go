package cli

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/baseline"
	"github.com/moonsail/moonsail/internal/lab/load"
	"github.com/moonsail/moonsail/internal/terminal"
)

// newBaselineCommand is "moonsail-lab baseline": the server that the experiment propagation compares with.
func newBaselineCommand() *cobra.Command {
	var o baseline.Options
	cmd := &cobra.Command{
		Use:    "baseline",
		Short:  "Serve the content of files without any computation",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			return baseline.Run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Dir, "config", "", "`DIR` to watch")
	fs.StringVar(&o.Addr, "addr", "127.0.0.1:0", "`ADDR` for streams")
	fs.StringVar(&o.HTTPAddr, "http-addr", "", "`ADDR` for profiles")
	fs.BoolVar(&o.Bare, "bare", false, "send bytes over bare TCP instead of xDS over gRPC")
	return cmd
}

// newLoadCommand is "moonsail-lab load": the client that sends an experiment's requests.
func newLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "load OPTIONS",
		Short:  "Send requests and print the results; options are JSON",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o load.Options
			if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
				return terminal.UsageError{Err: fmt.Errorf("options %q: %w", args[0], err)}
			}
			r, err := load.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		},
	}
}

// newBackendCommand is "moonsail-lab backend": the application that answers them.
func newBackendCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:    "backend",
		Short:  "Answer requests",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return load.Backend(cmd.Context(), addr, slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "`ADDR` to listen on")
	return cmd
}
