package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// apiServer is the address of the API server within the cluster.
const apiServer = "172.30.0.1:6443"

// plug connects node i, which has process pid, to the bridge of node 1 and sets routes to the Pods of the nodes before it.
// pids are the processes of those nodes.
func plug(ctx context.Context, i, pid int, pids []int) error {
	in := func(pid int, args ...string) error {
		_, err := output(exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", "ip"}, args...)...))
		return err
	}
	first := strconv.Itoa(pids[0])
	node := fmt.Sprintf("node%d", i)
	address := func(i int) string { return fmt.Sprintf("172.30.0.%d", i) }
	pods := func(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }
	steps := []func() error{
		func() error {
			return in(pid, "link", "add", "eth0", "type", "veth", "peer", "name", node, "netns", first)
		},
		func() error { return in(pids[0], "link", "set", node, "master", "nodes", "up") },
		func() error { return in(pid, "link", "set", "eth0", "up") },
		func() error { return in(pid, "address", "add", address(i)+"/24", "dev", "eth0") },
	}
	for j, other := range pids {
		steps = append(steps,
			func() error { return in(pid, "route", "add", pods(j+1), "via", address(j+1)) },
			func() error { return in(other, "route", "replace", pods(i), "via", address(i)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Dial connects from a node's network, where Pods and Services have their addresses.
func (c *Cluster) Dial(ctx context.Context, node, address string) (net.Conn, error) {
	pid, err := c.pid(node)
	if err != nil {
		return nil, err
	}
	return dialFrom(ctx, pid, address)
}

// dialFrom connects from the network namespace of a process. address has an IP address, so that nothing is resolved.
func dialFrom(ctx context.Context, pid int, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	onOwnThread(func() {
		conn, err := func() (net.Conn, error) {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err != nil {
				return nil, err
			}
			defer func() { _ = ns.Close() }() // it is only read
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, fmt.Errorf("enter the network of process %d: %w", pid, err)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}()
		done <- result{conn, err}
	})
	r := <-done
	return r.conn, r.err
}

// forwarder is a loopback port of the machine that leads to the API server.
type forwarder struct {
	listener net.Listener
	pid      int // of node 1
	stop     context.CancelFunc
	all      sync.WaitGroup
}

func forward(ctx context.Context, pid int) (*forwarder, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &forwarder{listener: listener, pid: pid, stop: stop}
	f.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.all.Go(func() { f.serve(ctx, conn) })
		}
	})
	return f, nil
}

func (f *forwarder) url() string { return "https://" + f.listener.Addr().String() }

func (f *forwarder) serve(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	server, err := dialFrom(ctx, f.pid, apiServer)
	if err != nil {
		return // the client sees that its connection ends
	}
	defer func() { _ = server.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close(); _ = server.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, server}, {server, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if half, ok := way[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}

func (f *forwarder) close() {
	f.stop()
	_ = f.listener.Close()
	f.all.Wait()
}
