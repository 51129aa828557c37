package cli

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane"
)

// addPeerFlags adds where the other control planes of the mesh are.
func (f *serveFlags) addPeerFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options.Replicas
	fs.StringSliceVar(&o.Addresses, "peer", nil,
		"`ADDR` of another control plane of this mesh, its --xds-addr as host:port (without --xds-addr its --xds-plaintext-addr): it is asked about its proxies when a workload leaves, and for wait, explain, proxies and stale; may be repeated, and a name may have several addresses")
	fs.StringVar(&o.Service, "peer-service", controlplane.DefaultPeerService,
		"`NAME` of the Service of the root namespace whose endpoints are the control planes of this mesh, with Kubernetes as the source; empty: none")
}

// checkPeers checks these flags.
func (f *serveFlags) checkPeers() error {
	for _, a := range f.options.Replicas.Addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil || host == "" {
			return fmt.Errorf("--peer: %q is not host:port", a)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("--peer: %q has no port from 1 to 65535", a)
		}
		if net.ParseIP(host) == nil && !isDNSName(host) {
			return fmt.Errorf("--peer: %q is neither a DNS name nor an IP address", host)
		}
	}
	return nil
}
