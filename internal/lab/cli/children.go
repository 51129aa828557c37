package cli

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/floor"
	"github.com/moonsail/moonsail/internal/lab/load"
	"github.com/moonsail/moonsail/internal/terminal"
)

// newFloorCommand is "moonsail-lab floor": what propagation measures beside a control plane.
func newFloorCommand() *cobra.Command {
	var o floor.Options
	cmd := &cobra.Command{
		Use:    "floor",
		Short:  "Serve what files hold, and compute nothing",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			return floor.Run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Dir, "config", "", "`DIR` that is watched")
	fs.StringVar(&o.Addr, "addr", "127.0.0.1:0", "`ADDR` of the streams")
	fs.StringVar(&o.HTTPAddr, "http-addr", "", "`ADDR` of profiles")
	fs.BoolVar(&o.Bare, "bare", false, "bytes over bare TCP instead of xDS on gRPC")
	return cmd
}

// newLoadCommand is "moonsail-lab load": what experiments send requests with.
func newLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "load OPTIONS",
		Short:  "Send requests, and print what came of them; options are JSON",
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

// newBackendCommand is "moonsail-lab backend": what answers them.
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
