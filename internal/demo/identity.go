package demo

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
)

// Where the control plane finds its authority and the tokens that it believes, and a sidecar
// its own.
func (m *mesh) authority() string { return filepath.Join(m.dir, "ca") }

func (m *mesh) roots() string { return filepath.Join(m.authority(), ca.RootFile) }

func (m *mesh) tokens() string { return filepath.Join(m.dir, "tokens", "all") }

func (m *mesh) token(account string) string { return filepath.Join(m.dir, "tokens", account+".token") }

// writeTokens makes a token for each service account, which is named as its application.
func (m *mesh) writeTokens() error {
	if err := os.MkdirAll(filepath.Dir(m.tokens()), 0o700); err != nil {
		return err
	}
	all := ""
	for _, account := range append([]string{shopper}, Services...) {
		token := rand.Text()
		all += fmt.Sprintf("%s,%s,%s\n", token, Namespace, account)
		if err := os.WriteFile(m.token(account), []byte(token), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(m.tokens(), []byte(all), 0o600)
}

// listens is nil once a workload's sidecar takes connections of others.
func (m *mesh) listens(ctx context.Context, w Workload) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.at(w, m.place.MeshPort))
	if err != nil {
		return err
	}
	return conn.Close()
}

// refusesPlainText is nil where a workload's sidecar lets in nobody without a certificate.
func (m *mesh) refusesPlainText(ctx context.Context, w Workload) error {
	if err := m.ok(ctx, "http://"+m.at(w, m.place.MeshPort)+"/healthz"); err == nil {
		return fmt.Errorf("the sidecar of %s lets in plain text", w.Name)
	}
	return nil
}

// countCalls gives how many requests sidecars have been asked, and how many of them by those who
// showed a certificate.
func (m *mesh) countCalls(ctx context.Context) (all, mutual int64, err error) {
	for _, w := range m.workloads {
		if err := m.countCallsOf(ctx, w, &all, &mutual); err != nil {
			return 0, 0, fmt.Errorf("metrics of %s: %w", w.Name, err)
		}
	}
	return all, mutual, nil
}

func (m *mesh) countCallsOf(ctx context.Context, w Workload, all, mutual *int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.at(w, agent.DefaultStatusPort)+"/stats/prometheus", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := m.probe.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		labels, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(labels, `istio_requests_total{reporter="destination"`) {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return err
		}
		*all += n
		if strings.Contains(labels, `connection_security_policy="mutual_tls"`) {
			*mutual += n
		}
	}
	return lines.Err()
}

// identities says how calls are secured, after it has seen to it.
func (d *demo) identities(ctx context.Context) error {
	served := d.workloads[1]
	if err := d.refusesPlainText(ctx, served); err != nil {
		return err
	}
	d.say("each sidecar has a certificate for its service account, and refuses callers without one (a plain-text call to %s fails)", served.Name)
	return nil
}

// authenticated is nil if all calls between sidecars were by mutual TLS.
func (d *demo) authenticated(ctx context.Context) error {
	all, mutual, err := d.countCalls(ctx)
	if err != nil {
		return err
	}
	if all == 0 || mutual != all {
		return fmt.Errorf("%d of %d calls between sidecars were mutually authenticated, not all", mutual, all)
	}
	fmt.Fprintf(d.out, "%s\n", paint(d.style.Good, fmt.Sprintf("All %d calls between the sidecars that are there were mutually authenticated.", all)))
	return nil
}
