package agent

import (
	"context"
	"errors"
	"fmt"
)

// Envoy's statistics that readiness is read from. All are in the required inclusions.
const (
	statState          = "server.state"
	statWorkersStarted = "listener_manager.workers_started"
	statCDSSuccess     = "cluster_manager.cds.update_success"
	statCDSRejected    = "cluster_manager.cds.update_rejected"
	statLDSSuccess     = "listener_manager.lds.update_success"
	statLDSRejected    = "listener_manager.lds.update_rejected"
	statXDSConnections = "cluster.xds-grpc;.upstream_cx_active" // ";" ends alt_stat_name

	readinessFilter = `^(server\.state|listener_manager\.workers_started|` +
		`(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected)|cluster\.xds-grpc;\.upstream_cx_active)$`
)

// serverStates are the values of server.state.
var serverStates = []string{"LIVE", "DRAINING", "PRE_INITIALIZING", "INITIALIZING"}

// checkReady is nil when Envoy is live, its workers run, and it took a configuration of
// clusters and of listeners; else it says what is missing. answered: Envoy spoke at all.
func (a *agent) checkReady(ctx context.Context) (answered bool, err error) {
	stats, err := a.admin.Stats(ctx, readinessFilter)
	if err != nil {
		return false, err
	}
	err = readiness(stats, a.XDS.Address)
	if err == nil && a.names != nil && !a.names.Loaded() {
		err = errors.New("the control plane has not told the names of the mesh yet")
	}
	if err != nil && a.identity != nil {
		if missing := a.identity.Problem(); missing != nil {
			return true, missing // what Envoy waits for first
		}
	}
	return true, err
}

func readiness(stats map[string]uint64, xds string) error {
	if stats[statCDSSuccess] == 0 || stats[statLDSSuccess] == 0 {
		return missingConfig(stats, xds)
	}
	state, ok := stats[statState]
	switch {
	case !ok:
		return errors.New("state of Envoy not known yet")
	case state != 0:
		return fmt.Errorf("state of Envoy is not LIVE but %s", stateName(state))
	case stats[statWorkersStarted] == 0:
		return errors.New("workers of Envoy have not started")
	}
	return nil
}

func missingConfig(stats map[string]uint64, xds string) error {
	rejected := stats[statCDSRejected] + stats[statLDSRejected]
	counts := fmt.Sprintf("clusters: %d accepted, %d rejected; listeners: %d accepted, %d rejected",
		stats[statCDSSuccess], stats[statCDSRejected], stats[statLDSSuccess], stats[statLDSRejected])
	switch {
	case rejected > 0:
		return fmt.Errorf("the control plane's configuration was rejected by Envoy (%s); its log has the reason", counts)
	case stats[statXDSConnections] == 0 && stats[statCDSSuccess] == 0:
		return fmt.Errorf("no connection to the control plane at %s (is it running there?)", xds)
	}
	return fmt.Errorf("the control plane at %s has not sent everything yet (%s)", xds, counts)
}

func stateName(state uint64) string {
	if state < uint64(len(serverStates)) {
		return serverStates[state]
	}
	return fmt.Sprintf("in state %d", state)
}
