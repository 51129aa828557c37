package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Options of Start.
type Options struct {
	Tools      Tools
	Name       string
	Nodes      int
	Kubeconfig string // file that Start writes and Stop removes
}

// Cluster is a cluster that runs, in this process or in another one.
type Cluster struct {
	Name string
	// Kubeconfig is the file that gives access to the cluster from this machine.
	Kubeconfig string

	tools Tools
	run   string // folder of its state

	// Only in the process that runs the cluster.
	lock    *os.File
	nodes   []*node // node 1 first
	forward *forwarder
}

// startLimit bounds the start of a cluster, which takes 15 s on 2 idle cores.
const startLimit = 4 * time.Minute

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// Start removes what a cluster of this name left behind, starts it, and returns when its nodes and DNS are ready. The
// caller stops it. If this process is killed, the kernel ends the nodes.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := o.cluster()
	if err != nil {
		return nil, err
	}
	if err := c.acquire(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := c.start(ctx, o.Nodes); err != nil {
		failure := fmt.Errorf("cluster %s: %w (logs: %s)", c.Name, err, filepath.Join(c.run, "node*/log"))
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			failure = ctx.Err() // interrupted: logs are not needed
		} else {
			c.keepLogs()
		}
		return nil, errors.Join(failure, c.Stop())
	}
	return c, nil
}

func (o Options) cluster() (*Cluster, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a cluster needs root: run it with sudo")
	}
	if !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("invalid name %q of a cluster: use at most 32 lower-case letters, digits and -", o.Name)
	}
	if o.Nodes < 1 || o.Nodes > 200 {
		return nil, fmt.Errorf("invalid number of nodes %d: use 1 to 200", o.Nodes)
	}
	if strings.ContainsAny(o.Tools.Dir, ":,\\ ") {
		return nil, fmt.Errorf("folder %q: overlayfs does not accept its name: use a folder without colon, comma and space", o.Tools.Dir)
	}
	return &Cluster{
		Name: o.Name, Kubeconfig: o.Kubeconfig, tools: o.Tools, run: o.Tools.path("run", o.Name),
	}, nil
}

// Open returns a cluster that another process runs.
func Open(t Tools, name string) (*Cluster, error) {
	c := &Cluster{Name: name, tools: t, run: t.path("run", name)}
	kubeconfig, err := os.ReadFile(c.file("kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("cluster %s does not run: start it with make cluster CLUSTER=%[1]s", name)
	}
	c.Kubeconfig = string(kubeconfig)
	return c, nil
}

func (c *Cluster) file(parts ...string) string {
	return filepath.Join(append([]string{c.run}, parts...)...)
}

// acquire makes this process the one that runs the cluster, and removes what an earlier one left behind.
func (c *Cluster) acquire() error {
	if err := os.MkdirAll(filepath.Dir(c.run), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(c.run+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner, readErr := io.ReadAll(lock)
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) && readErr == nil {
			return &runningError{name: c.Name, owner: strings.TrimSpace(string(owner))}
		}
		return errors.Join(err, readErr)
	}
	err = c.clean()
	if err == nil {
		err = lock.Truncate(0)
	}
	if err == nil {
		_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		_ = lock.Close() // releases it
		return err
	}
	c.lock = lock
	return nil
}

// runningError is the error of a cluster that another process runs.
type runningError struct{ name, owner string }

func (e *runningError) Error() string {
	return fmt.Sprintf("cluster %s runs already, in process %s: stop it with make cluster-down, or use another name (CLUSTER=NAME)", e.name, e.owner)
}

// clean removes control groups and files of a cluster whose process has ended.
func (c *Cluster) clean() error {
	nodes, err := filepath.Glob(c.file("node*"))
	if err != nil {
		return err
	}
	for _, dir := range nodes {
		groups, err := cgroupsOf(c.group(filepath.Base(dir)))
		if err != nil {
			return err
		}
		if err := groups.remove(); err != nil {
			return err
		}
	}
	if path, err := os.ReadFile(c.file("kubeconfig")); err == nil {
		if err := os.Remove(string(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(c.run)
}

// group is the name of a node's control groups. Clusters of several checkouts of the repository may have equal names.
func (c *Cluster) group(node string) string {
	sum := sha256.Sum256([]byte(c.run))
	return fmt.Sprintf("cluster-%s-%x-%s", c.Name, sum[:4], node)
}

func (c *Cluster) start(ctx context.Context, count int) error {
	began := time.Now()
	step := func(what string) { fmt.Fprintf(c.tools.Log, "    %5.1f s: %s\n", time.Since(began).Seconds(), what) }
	fmt.Fprintf(c.tools.Log, "==> starting cluster %s of %d nodes\n", c.Name, count)
	if err := c.credentials(ctx, count); err != nil {
		return err
	}
	for range count {
		if err := c.addNode(ctx); err != nil {
			return err
		}
	}
	f, err := forward(ctx, c.nodes[0].pid)
	if err != nil {
		return err
	}
	c.forward = f
	if err := c.writeKubeconfig(); err != nil {
		return err
	}
	if err := c.awaitAPIServer(ctx); err != nil {
		return err
	}
	step("API server is ready")
	if err := c.applyManifests(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if _, err := output(c.Kubectl(ctx, "wait", "--for=create", "node/"+n.name, "--timeout=2m")); err != nil {
			return err
		}
		if _, err := output(c.Kubectl(ctx, "wait", "--for=condition=Ready", "node/"+n.name, "--timeout=2m")); err != nil {
			return err
		}
		step(n.name + " is ready")
	}
	if _, err := output(c.Kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=2m")); err != nil {
		return err
	}
	step("DNS is ready")
	return nil
}

// Wait returns when ctx ends, or with an error when node 1 does.
func (c *Cluster) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.nodes[0].done:
		return fmt.Errorf("cluster %s: node1 has ended: %s", c.Name, lastLine(c.file("node1", "log", "node.log")))
	}
}

// Stop ends all nodes and removes the cluster's files.
func (c *Cluster) Stop() error {
	if c.forward != nil {
		c.forward.close()
	}
	for _, n := range c.nodes {
		n.kill()
	}
	err := c.clean()
	return errors.Join(err, c.lock.Close())
}

// keepLogs copies the logs of nodes to a folder that outlives the cluster.
func (c *Cluster) keepLogs() {
	to := c.tools.path("logs", c.Name)
	_ = os.RemoveAll(to)
	nodes, err := filepath.Glob(c.file("node*"))
	if err != nil {
		return
	}
	for _, dir := range nodes {
		if err := os.CopyFS(filepath.Join(to, filepath.Base(dir)), os.DirFS(filepath.Join(dir, "log"))); err != nil {
			fmt.Fprintln(c.tools.Log, "warning: cannot keep logs:", err)
			return
		}
	}
	fmt.Fprintln(c.tools.Log, "    logs are in", to)
}

// Down stops a cluster, whatever process runs it, and removes what it left behind.
func Down(ctx context.Context, t Tools, name string) error {
	c, err := Options{Tools: t, Name: name, Nodes: 1}.cluster()
	if err != nil {
		return err
	}
	for signalled := false; ; signalled = true {
		err := c.acquire()
		var running *runningError
		if !errors.As(err, &running) {
			if err != nil {
				return err
			}
			return c.lock.Close()
		}
		if pid, err := strconv.Atoi(running.owner); err == nil && !signalled {
			if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("process %s still runs cluster %s: kill it", running.owner, name)
		}
	}
}
