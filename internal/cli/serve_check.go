package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/moonsail/moonsail/internal/terminal"
)

// check finds what is wrong with the flags before anything starts.
func (f *serveFlags) check() error {
	cluster, err := f.kube.choose("--config", f.options.ConfigDir != "")
	if err != nil {
		return err
	}
	f.options.Kubernetes = cluster
	if f.options.XDSPlaintextAddr == "" && f.options.Identity.Addr == "" {
		return terminal.UsageError{Err: errors.New("no address to serve proxies at: give --xds-addr, for example :15012, or --xds-plaintext-addr 127.0.0.1:15010")}
	}
	if !slices.Contains(routeStrategies, f.strategy) {
		return terminal.UsageError{Err: fmt.Errorf("unknown --route-strategy %q: it is auto, rds, vhds or scoped", f.strategy)}
	}
	if !slices.Contains(transports, f.transport) {
		return terminal.UsageError{Err: fmt.Errorf("unknown --xds-transport %q: it is grpc or http2", f.transport)}
	}
	if f.profiling.MutexFraction < 0 || f.profiling.BlockRate < 0 {
		return terminal.UsageError{Err: errors.New("profiling rates are not negative: 0 is none")}
	}
	if f.options.SampleInUse < 0 {
		return terminal.UsageError{Err: errors.New("--sample-in-use is not negative: 0 is never")}
	}
	if f.options.Heartbeat < 0 {
		return terminal.UsageError{Err: errors.New("--heartbeat is not negative: 0 is none")}
	}
	if err := f.checkAccess(); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := errors.Join(f.checkUsers(), f.checkIdentity(), f.checkPeers()); err != nil {
		return terminal.UsageError{Err: err}
	}
	if cluster != nil {
		return nil
	}
	return f.checkDir()
}

// checkUsers checks what tells users of their mistakes, and completes it.
func (f *serveFlags) checkUsers() error {
	o, w := &f.options, &f.options.Webhook
	switch {
	case o.Status && o.Kubernetes == nil:
		return errors.New("--status is about objects of a cluster: leave it out with --config")
	case w.Addr == "" && (w.CertFile != "" || w.KeyFile != "" || w.Config != ""):
		return errors.New("--webhook-cert, --webhook-key and --webhook-config are the webhook's: give --webhook-addr too")
	case (w.CertFile == "") != (w.KeyFile == ""):
		return errors.New("--webhook-cert and --webhook-key go together")
	case w.Config != "" && w.CertFile != "":
		return errors.New("--webhook-config: not allowed with --webhook-cert: the issuer of that certificate sets the CA of the webhook's configuration")
	case w.Config != "" && o.Kubernetes == nil:
		return errors.New("--webhook-config is an object of a cluster: leave it out with --config")
	}
	if err := f.inject.into(w, o.Kubernetes != nil); err != nil {
		return err
	}
	service := "moonsail." + f.mesh.RootNamespace
	w.Names = []string{"127.0.0.1", "::1", "localhost", service, service + ".svc", service + ".svc." + f.mesh.Domain}
	return nil
}

func (f *serveFlags) checkDir() error {
	switch info, err := os.Stat(f.options.ConfigDir); {
	case errors.Is(err, fs.ErrNotExist):
		return &terminal.UserError{What: "no such directory", Where: "--config " + f.options.ConfigDir, Next: "make it, or name another"}
	case err != nil:
		return &terminal.UserError{Where: "--config " + f.options.ConfigDir, Err: err}
	case !info.IsDir():
		return &terminal.UserError{What: "it is a file", Where: "--config " + f.options.ConfigDir, Next: "name the directory that holds it"}
	}
	return nil
}

// explain says what to do about why the control plane could not run.
func (f *serveFlags) explain(err error) error {
	var address *net.AddrError
	switch {
	case errors.As(err, &address):
		return &terminal.UserError{Err: err, Next: "write it as HOST:PORT or :PORT, for example 127.0.0.1:15010"}
	case errors.Is(err, syscall.EADDRINUSE):
		return &terminal.UserError{Err: err, Next: "another control plane may be running; end it, or choose another address with that flag"}
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EADDRNOTAVAIL):
		return &terminal.UserError{Err: err, Next: "choose an address of this machine that you may listen on"}
	}
	return err
}
