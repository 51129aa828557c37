// Package pair runs what experiments on sidecars measure: a control plane, one application
// (load.Backend), and any number of pairs, each a client and a server of a namespace of their
// own, with real sidecars: `moonsail agent` with Envoy, certificates from the mesh's authority,
// and the configuration that the control plane generates.
//
//	m, err := pair.Start(ctx, pair.Options{Programs: programs, Envoy: path})
//	defer m.Stop()
//	p, err := m.Pair(ctx, pair.Setup{Name: "both", Client: true, Server: true, MTLS: true, Concurrency: 2})
//	defer p.Stop()
//	result, err := p.Load(ctx, load.Options{Connections: 64, Duration: time.Second})
//	p.Server.Pid, p.Server.Admin // of its Envoy
//
// Everything is on loopback addresses, without interception: the client's sidecar listens where
// its application would call, and the server's where others do (Sidecar objects with captureMode
// NONE). All processes end with the lab, however that ends.
package pair
