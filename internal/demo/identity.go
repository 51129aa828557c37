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

// Paths of the certificate authority and of tokens: all of them for the control plane, one for each sidecar.
func (m *mesh) authority() string { return filepath.Join(m.dir, "ca") }

func (m *mesh) roots() string { return filepath.Join(m.authority(), ca.RootFile) }

func (m *mesh) tokens() string { return filepath.Join(m.dir, "tokens", "all") }

func (m *mesh) token(account string) string { return filepath.Join(m.dir, "tokens", account+".token") }

// writeTokens creates a token for each service account, which has the name of its application.
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

// listens returns nil if the sidecar of a workload accepts connections of other sidecars.
func (m *mesh) listens(ctx context.Context, w Workload) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.at(w, m.addresses.MeshPort))
	if err != nil {
		return err
	}
	return conn.Close()
}

// refusesPlainText returns nil if the sidecar of a workload refuses callers without a certificate.
func (m *mesh) refusesPlainText(ctx context.Context, w Workload) error {
	if err := m.ok(ctx, "http://"+m.at(w, m.addresses.MeshPort)+"/healthz"); err == nil {
		return fmt.Errorf("sidecar of %s: accepts plain text", w.Name)
	}
	return nil
}

// countCalls returns the number of requests that sidecars have received, and how many of them came with a
// client certificate.
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

// identities checks that plain text is refused, and prints how calls are secured.
func (d *demo) identities(ctx context.Context) error {
	served := d.workloads[1]
	if err := d.refusesPlainText(ctx, served); err != nil {
		return err
	}
	d.logf("each sidecar has a certificate of its service account, and refuses callers without one (a plain-text call to %s fails)", served.Name)
	return nil
}

// authenticated returns nil if all calls between sidecars used mutual TLS.
func (d *demo) authenticated(ctx context.Context) error {
	all, mutual, err := d.countCalls(ctx)
	if err != nil {
		return err
	}
	if all == 0 || mutual != all {
		return fmt.Errorf("calls between sidecars: only %d of %d were mutually authenticated", mutual, all)
	}
	fmt.Fprintf(d.out, "%s\n", d.style.Good(fmt.Sprintf("All %d calls between running sidecars were mutually authenticated.", all)))
	return nil
}
