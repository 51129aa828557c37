package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/security/ca"
)

// addIdentityFlags adds what is about certificates, and about xDS with them.
func (f *serveFlags) addIdentityFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options.Identity
	fs.StringVar(&o.Addr, "xds-addr", "",
		"`ADDR` of xDS and of the certificate authority, with TLS: proxies show their certificate, for example :15012 (default: off)")
	fs.StringSliceVar(&o.Names, "xds-cert-names", nil,
		"further `NAMES` and IP addresses for the certificate of --xds-addr, besides istiod and moonsail as services of the root namespace, localhost and 127.0.0.1")
	fs.StringVar(&o.CADir, "ca-dir", "",
		"`DIR` with the certificate authority: "+strings.Join([]string{ca.CertFile, ca.KeyFile, ca.ChainFile, ca.RootFile}, ", ")+
			"; a root is made there where it is empty (default: the Secrets cacerts or istio-ca-secret of the root namespace; with --config "+defaultCADirText+")")
	fs.StringVar(&o.TokenFile, "token-auth-file", "",
		"`FILE` with tokens by which workloads get their first certificate, one line each: token,namespace,service-account")
	fs.DurationVar(&o.TTL, "workload-cert-ttl", ca.DefaultTTL, "how long a workload's certificate lasts that is not asked for a time")
	fs.DurationVar(&o.MaxTTL, "max-workload-cert-ttl", ca.DefaultMaxTTL, "how long it lasts at most")
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagDirname("ca-dir")
	_ = cmd.MarkFlagFilename("token-auth-file")
}

const defaultCADirText = "~/.local/state/moonsail/ca"

// checkIdentity checks these flags, and completes them.
func (f *serveFlags) checkIdentity() error {
	o := &f.options.Identity
	switch {
	case o.Addr == "" && (len(o.Names) > 0 || o.CADir != "" || o.TokenFile != ""):
		return errors.New("--xds-cert-names, --ca-dir and --token-auth-file are about --xds-addr: give it too, for example :15012")
	case o.TTL <= 0 || o.MaxTTL <= 0:
		return errors.New("--workload-cert-ttl and --max-workload-cert-ttl are longer than 0")
	case o.TTL > o.MaxTTL:
		return fmt.Errorf("--workload-cert-ttl (%s) is longer than --max-workload-cert-ttl (%s)", o.TTL, o.MaxTTL)
	}
	for _, n := range o.Names {
		if net.ParseIP(n) == nil && !isDNSName(n) {
			return fmt.Errorf("--xds-cert-names: %q is neither a DNS name nor an IP address", n)
		}
	}
	if o.Addr == "" || o.CADir != "" || f.options.Kubernetes != nil {
		return nil
	}
	dir, err := defaultCADir()
	o.CADir = dir
	return err
}

// isDNSName tells names that a certificate may have; the first label may be a *.
func isDNSName(s string) bool {
	for i, label := range strings.Split(s, ".") {
		if label == "*" && i == 0 && len(s) > 1 {
			continue
		}
		if label == "" || len(label) > 63 || strings.Trim(label, "-") != label || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			return false
		}
	}
	return len(s) <= 253
}

// defaultCADir is where this user's authority is kept, as the XDG base directories have it.
func defaultCADir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no directory for the certificate authority (%w): set --ca-dir", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "moonsail", "ca"), nil
}
