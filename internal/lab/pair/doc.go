// Package pair runs what experiments on sidecars measure: a control plane, one application (load.Backend), and any number of
// pairs. A pair is a client and a server in a separate namespace, with real sidecars: `moonsail agent` with Envoy,
// certificates from the mesh's authority, and the configuration that the control plane generates.
//
//	m, err := pair.Start(ctx, pair.Options{Programs: programs, Envoy: path})
//	defer m.Stop()
//	p, err := m.Pair(ctx, pair.Setup{Name: "both", Client: true, Server: true, MTLS: true, Concurrency: 2})
//	defer p.Stop()
//	result, err := p.Load(ctx, load.Options{Connections: 64, Duration: time.Second})
//	p.Server.Pid, p.Server.Admin // of its Envoy
//
// All addresses are loopback addresses, and nothing is intercepted: the client's sidecar listens at the address that its
// application calls, and the server's at the address that others call (Sidecar objects with captureMode NONE). All processes
// end with the lab.
package pair
