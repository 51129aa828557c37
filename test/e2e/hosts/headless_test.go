//go:build linux

package hosts

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/netns"
)

// headlessDB is a service that is called at the addresses of its Pods.
const headlessDB = `apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: tcp, port: 6379}]}`

const (
	dbCluster  = "outbound|6379||db.shop.svc.cluster.local"
	anyCluster = "PassthroughCluster"
)

// dbs are Pods of that service, all on one host, and a caller with a sidecar.
type dbs struct {
	*mesh
	client *workload
	server *netns.Host
}

// pod is the address of the i-th Pod.
func pod(i int) string { return netip.AddrFrom4([4]byte{10, 91, 0, byte(100 + i)}).String() + ":6379" }

func startDBs(t *testing.T, all int) *dbs {
	t.Helper()
	m := startMesh(t, headlessDB)
	d := &dbs{mesh: m, server: m.net.Host()}
	var commands []string
	for i := range all {
		ip, _, _ := net.SplitHostPort(pod(i))
		commands = append(commands, "addr add "+ip+"/24 dev eth0")
	}
	batch := d.server.Command(t, "ip", "-batch", "-")
	batch.Stdin = strings.NewReader(strings.Join(commands, "\n"))
	out, err := batch.CombinedOutput()
	require.NoError(t, err, string(out))
	greet(t, d.server)
	d.client = m.workload("client", "--drain-time", "1s", "--proxy-config", "drainDuration: 1s")
	return d
}

// greet sends at port 6379 of every address which one was called, and then echoes.
func greet(t *testing.T, h *netns.Host) {
	t.Helper()
	var ln net.Listener
	var err error
	h.Do(t, func() { ln, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":6379") })
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, err := fmt.Fprintln(conn, conn.LocalAddr())
				for in := bufio.NewScanner(conn); err == nil && in.Scan(); {
					_, err = fmt.Fprintln(conn, in.Text())
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
}

// list lists the Pods from one to before another in the service, all ready except some.
func (d *dbs) list(from, to int, but map[int]string) {
	d.t.Helper()
	text := ""
	for i := from; i < to; i++ {
		ip, _, _ := net.SplitHostPort(pod(i))
		text += "\n- {addresses: [" + ip + "], conditions: " + cmp.Or(but[i], "{ready: true}") + "}"
	}
	d.write("db.yaml", `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: tcp, port: 6379}]
endpoints:`+text)
}

// calls returns the caller's connections to a Pod by cluster, from Envoy's statistics.
func (d *dbs) calls(address string) map[string]string {
	_, text, err := get(d.client.Host, "http://127.0.0.1:15000/clusters", "")
	require.NoError(d.t, err)
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if parts := strings.Split(strings.TrimSpace(line), "::"); len(parts) == 4 && parts[1] == address && parts[2] == "cx_total" {
			out[parts[0]] = parts[3]
		}
	}
	return out
}

// listeners returns Envoy's counters of changed listeners.
func (d *dbs) listeners() map[string]int {
	d.t.Helper()
	_, text, err := get(d.client.Host, "http://127.0.0.1:15000/stats?filter=^listener_manager", "")
	require.NoError(d.t, err)
	out := map[string]int{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.Atoi(value); err == nil {
			out[strings.TrimPrefix(name, "listener_manager.")] = n
		}
	}
	return out
}

// open is a connection that the server has greeted.
type open struct {
	net.Conn
	in *bufio.Reader
}

func (d *dbs) dial(address string) (*open, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := dialFrom(ctx, d.client.Host, "tcp", address)
	if err != nil {
		return nil, err
	}
	o := &open{conn, bufio.NewReader(conn)}
	d.t.Cleanup(func() { _ = o.Close() })
	said, err := o.line()
	if err == nil && said != address {
		err = errors.New("it is " + said)
	}
	return o, err
}

func (o *open) line() (string, error) {
	if err := o.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	text, err := o.in.ReadString('\n')
	return strings.TrimSpace(text), err
}

// works reports whether the connection still works.
func (o *open) works() error {
	if _, err := fmt.Fprintln(o, "still there"); err != nil {
		return err
	}
	text, err := o.line()
	if err == nil && text != "still there" {
		err = errors.New("it says " + text)
	}
	return err
}

// reach calls a Pod until the call uses a cluster.
func (d *dbs) reach(address, cluster string) *open {
	d.t.Helper()
	var out *open
	eventually(d.t, "a call of "+address+" by "+cluster, func() error {
		before := d.calls(address)[cluster]
		o, err := d.dial(address)
		switch {
		case err != nil:
			return err
		case d.calls(address)[cluster] == before:
			_ = o.Close()
			return fmt.Errorf("calls of it: %v", d.calls(address))
		}
		out = o
		return nil
	})
	return out
}

// TestHeadlessChurn replaces all 50 Pods of a headless service in groups, under open connections. Pods are listed
// before they are ready, and are not ready for a while before they are removed. Listeners may change only when a Pod is
// added or removed, and no connection to a listed Pod may end. Calls to new Pods must use the service's cluster, and
// calls to removed ones none.
func TestHeadlessChurn(t *testing.T) {
	const pods, some = 50, 10
	d := startDBs(t, 2*pods)
	d.list(0, pods, nil)
	var conns []*open
	for i := range pods {
		conns = append(conns, d.reach(pod(i), dbCluster))
	}
	d.reach(pod(pods), anyCluster)
	for i := 0; i < pods; i += some {
		before := d.listeners()
		states := map[int]string{}
		for n := range some {
			states[i+n], states[pods+i+n] = "{ready: false, serving: false, terminating: true}", "{ready: false}"
		}
		d.list(i, pods+i+some, states)
		for n := range some {
			conns = append(conns, d.reach(pod(pods+i+n), dbCluster))
		}
		d.requireListeners(before, some, 0)
		d.reach(pod(i), dbCluster)
		for n := range some {
			require.NoError(t, conns[i+n].works(), "a Pod that is there, if not ready")
		}
		d.list(i+some, pods+i+some, nil)
		d.reach(pod(i), anyCluster)
		d.requireListeners(before, some, some)
	}
	for _, c := range conns[pods:] {
		require.NoError(t, c.works(), c.RemoteAddr())
	}
}

// requireListeners checks how many of Envoy's listeners were added and removed, and that no other was replaced.
func (d *dbs) requireListeners(before map[string]int, added, removed int) {
	d.t.Helper()
	now := d.listeners()
	for name, n := range map[string]int{"listener_added": added, "listener_removed": removed, "listener_modified": 0} {
		require.Contains(d.t, before, name)
		require.Equal(d.t, before[name]+n, now[name], name)
	}
}
