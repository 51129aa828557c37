package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed node.sh
var nodeScript []byte

// node is a node that this process runs.
type node struct {
	name string
	pid  int           // its process 1, as this machine numbers it
	done chan struct{} // closed when process 1 has ended
}

// addNode starts the next node and connects it to the others.
func (c *Cluster) addNode(ctx context.Context) error {
	index := len(c.nodes) + 1
	name := fmt.Sprintf("node%d", index)
	dir := c.file(name)
	for _, sub := range []string{"containerd", "kubelet", "etcd", "log", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := notOverlay(dir); err != nil {
		return err
	}
	n, err := c.startNode(name, index)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	pids := make([]int, 0, len(c.nodes))
	for _, other := range c.nodes {
		pids = append(pids, other.pid)
	}
	c.nodes = append(c.nodes, n)
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(n.pid)), 0o644); err != nil {
		return err
	}
	if index == 1 {
		return nil
	}
	if err := c.awaitBridge(ctx); err != nil {
		return err
	}
	return plug(ctx, index, n.pid, pids)
}

// notOverlay checks that containerd's snapshots, which are overlays, can lie in a folder.
func notOverlay(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s: containerd cannot store images on overlayfs: use a folder on another file system (KUBERNETES=DIR)", dir)
	}
	return nil
}

// startNode starts process 1 of a node.
func (c *Cluster) startNode(name string, index int) (*node, error) {
	groups, err := cgroupsOf(c.group(name))
	if err != nil {
		return nil, err
	}
	if err := groups.create(); err != nil {
		return nil, err
	}
	script := c.file(name, "node.sh")
	if err := os.WriteFile(script, nodeScript, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(c.file(name, "log", "node.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("bash", script)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "NODE=" + name, "INDEX=" + strconv.Itoa(index), "TOOLS=" + c.tools.Dir, "RUN=" + c.run,
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid:    true, // Ctrl-C reaches this process only
		Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
			unix.CLONE_NEWCGROUP,
	}
	n := &node{name: name, done: make(chan struct{})}
	started := make(chan error, 1)
	onOwnThread(func() { // Pdeathsig is sent when this thread ends; it stays in the node's groups
		defer close(n.done)
		defer func() { _ = log.Close() }() // the node has written it
		err := groups.start(cmd)
		started <- err
		if err == nil {
			_ = cmd.Wait() // the node is killed, so that it ends with an error
		}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	n.pid = cmd.Process.Pid
	return n, nil
}

// kill ends the node with everything in it.
func (n *node) kill() {
	_ = unix.Kill(n.pid, unix.SIGKILL) // it may have ended
	<-n.done
}

// awaitBridge waits until node 1 has the bridge that other nodes are plugged into.
func (c *Cluster) awaitBridge(ctx context.Context) error {
	return c.await(ctx, func() error {
		_, err := output(exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(c.nodes[0].pid), "-n", "ip", "link", "show", "nodes"))
		return err
	})
}

// await tries until try succeeds, a node ends or ctx ends.
func (c *Cluster) await(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		for _, n := range c.nodes {
			select {
			case <-n.done:
				return fmt.Errorf("%s has ended: %s", n.name, lastLine(c.file(n.name, "log", "node.log")))
			default:
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// Nodes returns the names of the nodes that run.
func (c *Cluster) Nodes() ([]string, error) {
	files, err := filepath.Glob(c.file("node*", "pid"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, path := range files {
		name := filepath.Base(filepath.Dir(path))
		if _, err := c.pid(name); err == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// pid returns process 1 of a node.
func (c *Cluster) pid(node string) (int, error) {
	text, err := os.ReadFile(c.file(node, "pid"))
	if err != nil {
		return 0, fmt.Errorf("cluster %s has no node %s", c.Name, node)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, err
	}
	if err := unix.Kill(pid, 0); err != nil {
		return 0, fmt.Errorf("node %s of cluster %s has ended", node, c.Name)
	}
	return pid, nil
}

// KillNode ends a node at once, as a power failure would. Only the process that runs the cluster can.
func (c *Cluster) KillNode(name string) error {
	for _, n := range c.nodes {
		if n.name == name {
			n.kill()
			return nil
		}
	}
	return fmt.Errorf("cluster %s has no node %s", c.Name, name)
}

// Exec returns a command that runs in a node: in its namespaces, with its root of the file system.
func (c *Cluster) Exec(ctx context.Context, node string, command ...string) (*exec.Cmd, error) {
	pid, err := c.pid(node)
	if err != nil {
		return nil, err
	}
	args := []string{"-t", strconv.Itoa(pid), "-a", "env", "PATH=/tools/bin:/usr/sbin:/usr/bin"}
	return exec.CommandContext(ctx, "nsenter", append(args, command...)...), nil
}

// Load imports archives of images into each node.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	nodes, err := c.Nodes()
	if err != nil {
		return err
	}
	for _, node := range nodes {
		pid, err := c.pid(node)
		if err != nil {
			return err
		}
		socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", pid)
		for _, archive := range archives {
			if _, err := output(exec.CommandContext(ctx, c.tools.path("bin", "ctr"), "--address", socket, "-n", "k8s.io", "images", "import", archive)); err != nil {
				return fmt.Errorf("load %s into %s: %w", archive, node, err)
			}
		}
	}
	return nil
}
