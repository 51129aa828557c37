package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// openPorts opens the ports without TLS, and the webhook's. newSecure opens the one with TLS.
func (p *parts) openPorts(ctx context.Context) (err error) {
	o := &p.opts
	if p.xdsListener, err = listen(ctx, "xds-plaintext-addr", o.XDSPlaintextAddr); err != nil {
		return err
	}
	if p.httpListener, err = listen(ctx, "http-addr", o.HTTPAddr); err != nil {
		return err
	}
	if p.readyListener, err = listen(ctx, "ready-addr", o.ReadyAddr); err != nil {
		return err
	}
	p.webhook, err = newWebhook(ctx, *o)
	return err
}

// listen opens the address of a flag; empty: the result is nil.
func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return ln, nil
}

// closePorts closes ports that are open and not served.
func (p *parts) closePorts() {
	for _, ln := range []net.Listener{p.xdsListener, p.httpListener, p.readyListener} {
		if ln != nil {
			ln.Close()
		}
	}
	p.webhook.close()
	p.secure.close()
}

// announce logs the addresses, and calls the functions of the options.
func (p *parts) announce() {
	o := &p.opts
	var xds, http net.Addr
	if p.secure != nil {
		at := p.secure.listener.Addr()
		o.Log.Info("serving xDS with TLS", "addr", at.String(), "certificates", p.secure.authority.place())
		if o.Identity.Listening != nil {
			o.Identity.Listening(at)
		}
	}
	if p.xdsListener != nil {
		xds = p.xdsListener.Addr()
		o.Log.Info("serving xDS in plain text", "addr", xds.String())
	}
	if p.httpListener != nil {
		http = p.httpListener.Addr()
		o.Log.Info("serving metrics and debug pages", "url", fmt.Sprintf("http://%s/debug", http))
	}
	if p.readyListener != nil {
		o.Log.Info("serving /ready", "addr", p.readyListener.Addr().String())
	}
	if o.Listening != nil {
		o.Listening(xds, http)
	}
}

// servePlaintext serves xDS in plain text.
func (p *parts) servePlaintext(ctx context.Context) error {
	return serveXDS(ctx, p.xds.NewPortServer(p.opts.Transport, server.Port{Methods: p.plainMethods(), Questions: p.questions(nil)}), p.xdsListener)
}

// serveTLS serves xDS and the certificate authority with TLS.
func (p *parts) serveTLS(ctx context.Context) error {
	return serveXDS(ctx, p.xds.NewPortServer(p.opts.Transport, p.secure.port(p)), p.secure.listener)
}

// serveDebugPages serves metrics and debug pages.
func (p *parts) serveDebugPages(ctx context.Context) error {
	return debug.NewServer(p.debugPages(ctx), p.opts.HTTPAccess, p.opts.Log).Serve(ctx, p.httpListener)
}

// serveReady serves /ready.
func (p *parts) serveReady(ctx context.Context) error {
	return debug.NewReadyServer(p.ready(), p.opts.Log).Serve(ctx, p.readyListener)
}

// goodbyeTime is the time for proxies to read that the server ends.
const goodbyeTime = time.Second

// serveXDS serves streams until ctx ends. Then it asks proxies to connect elsewhere, and closes the connections of those
// that do not react in time.
func serveXDS(ctx context.Context, xds server.PortServer, ln net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTime)
		defer cancel()
		xds.GracefulStop(goodbye)
	})
	err := xds.Serve(ln)
	if stop() {
		xds.Stop()
		return err
	}
	<-stopped
	return nil
}
