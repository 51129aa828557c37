// Command envoy-install fetches the pinned Envoy and prints its path, as `moonsail envoy install` does.
//
// It needs the standard library only. The Makefile builds it first, so that Envoy arrives while moonsail compiles.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := envoy.Install(ctx, "", os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, path)
}
