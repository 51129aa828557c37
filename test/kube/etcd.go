package main

import (
	"context"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs etcd on loopback ports of the kernel's choice. It does not wait for the disk (UnsafeNoFsync): what it
// wrote survives a crash of this process, but not of the machine.
func startEtcd(ctx context.Context, st *state) (*embed.Etcd, error) {
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg := embed.NewConfig()
	cfg.Dir = st.path("etcd")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = anyPort, anyPort
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = anyPort, anyPort
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.EnableGRPCGateway = false // it would look for its server at the advertised port
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{st.path("etcd.log")}
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // 0 would warn about each request
	cfg.QuotaBackendBytes = 4 << 30
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		e.Close()
		return nil, ctx.Err()
	}
}
