// Package terminal is what the command lines of this repository share: errors and exit statuses, output
// formats, logging, progress, colours, and environment variables of flags.
//
// Commands write results to cmd.OutOrStdout and everything else (progress, logs, errors) to cmd.ErrOrStderr, so that
// results can be piped.
//
// Start reading at Run in run.go.
//
// Layer 8 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package terminal
