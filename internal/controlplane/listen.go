package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/moonsail/moonsail/internal/xds/server"
)

func listen(ctx context.Context, o Options) (xds, http net.Listener, err error) {
	open := func(flag, addr string) net.Listener {
		if addr == "" || err != nil {
			return nil
		}
		ln, failed := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if failed != nil {
			err = fmt.Errorf("--%s: %w", flag, failed)
			return nil
		}
		return ln
	}
	xds = open("xds-plaintext-addr", o.XDSPlaintextAddr)
	http = open("http-addr", o.HTTPAddr)
	if err != nil && xds != nil {
		xds.Close()
	}
	return xds, http, err
}

func closeAll(listeners ...net.Listener) {
	for _, ln := range listeners {
		if ln != nil {
			ln.Close()
		}
	}
}

// leaveTime is the time for proxies to read that the server ends.
const leaveTime = time.Second

// serveXDS serves streams until ctx ends. Then it tells proxies to connect elsewhere, and closes the
// connections of those that do not react in time.
func serveXDS(ctx context.Context, xds server.Carrier, ln net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		xds.GracefulStop(leave)
	})
	err := xds.Serve(ln)
	if stop() {
		xds.Stop()
		return err
	}
	<-stopped
	return nil
}

func announce(o Options, xds, http net.Listener) {
	var x, h net.Addr
	if xds != nil {
		x = xds.Addr()
		o.Log.Info("serving xDS in plain text", "addr", x.String())
	}
	if http != nil {
		h = http.Addr()
		o.Log.Info("serving metrics and debug pages", "url", fmt.Sprintf("http://%s/debug", h))
	}
	if o.Listening != nil {
		o.Listening(x, h)
	}
}
