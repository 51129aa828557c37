package model

// TLSDefaults are for TLS that is not the mesh's own: that which gateways and sidecars end as a Gateway or a
// Sidecar says, and that of calls as a DestinationRule says. Empty: Envoy's defaults.
type TLSDefaults struct {
	MinVersion   string   // "TLSv1_2"; as in Istio of what is ended alone
	CipherSuites []string // of TLS 1.2 and older
	ECDHCurves   []string
}

// Under is a server's TLS with the defaults for what it says nothing of. The server's newest version goes before
// the oldest of the defaults. d may be nil; t stays as it is.
func (d *TLSDefaults) Under(t *ServerTLS) *ServerTLS {
	if d == nil {
		return t
	}
	out := *t
	if out.MinVersion == "" {
		out.MinVersion = d.MinVersion
		if out.MaxVersion != "" {
			out.MinVersion = min(out.MinVersion, out.MaxVersion) // their names ascend
		}
	}
	if len(out.CipherSuites) == 0 {
		out.CipherSuites = d.CipherSuites
	}
	out.ECDHCurves = d.ECDHCurves
	return &out
}
