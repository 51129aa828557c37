package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/security/debugauth"
)

// addAccess adds the flags of who may read --http-addr.
func (f *serveFlags) addAccess(cmd *cobra.Command) {
	fs, a := cmd.Flags(), &f.options.HTTPAccess
	a.Flags = "--http"
	fs.StringVar(&a.TokenFile, "http-token-file", "", "`FILE` of bearer tokens, one a line, that open --http-addr beyond this machine; read again for each request")
	fs.StringVar(&a.CertFile, "http-cert", "", "`FILE` with a certificate, to serve --http-addr with TLS; read again for each connection")
	fs.StringVar(&a.KeyFile, "http-key", "", "`FILE` with that certificate's private key")
	fs.StringVar(&a.ClientCA, "http-client-ca", "", "`FILE` of certificates: client certificates that they have issued open --http-addr beyond this machine")
	fs.BoolVar(&f.scrape, "http-scrape", false, "answer /metrics, /ready and /version at --http-addr without credentials, for Prometheus and probes")
}

// checkAccess sees to it that nobody opens the debug pages to a network by mistake.
func (f *serveFlags) checkAccess() error {
	o := &f.options
	if f.scrape {
		o.HTTPAccess.Open = debug.Scrapeable
	}
	if err := o.HTTPAccess.Check(); err != nil {
		return err
	}
	if o.HTTPAddr == "" || !debugauth.Reachable(o.HTTPAddr) || o.HTTPAccess.Credentials() || f.scrape {
		return nil
	}
	return fmt.Errorf("--http-addr %s can be reached by others, and tells the whole configuration: "+
		"give --http-token-file or --http-client-ca, or --http-scrape to answer others /metrics, /ready and /version only", o.HTTPAddr)
}
