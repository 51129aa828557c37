// Command kube is a Kubernetes cluster in one process, for tests and trials: etcd, the API server and the controllers
// that Deployments and Services need, all of them the real ones, and a kubelet that only reports that its containers
// run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// config has the values of the flags.
type config struct {
	dir         string         // the state; empty: a temporary one, removed at the end
	port        int            // of the API server, on loopback; 0: the kernel's choice
	kubeconfig  string         // also written there; empty: only to the state's folder
	crds        string         // a folder of CustomResourceDefinitions, installed at start
	namespaces  []string       // created at start
	nodes       int            // the least number of nodes
	podCIDRs    []netip.Prefix // one for each IP family of pods
	serviceCIDR string
	stopAfter   time.Duration // how long a deleted pod's containers continue to run
	verbosity   int
	untilEOF    bool // end when standard input ends, so as not to outlive the parent
}

func parse(args []string, out io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("kube", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&c.dir, "dir", "", "keep the cluster's state in this folder, and take it up from there; a temporary one if empty")
	fs.IntVar(&c.port, "port", 0, "port of the API server, on loopback; 0 is any free one")
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "write the administrator's kubeconfig to this file")
	fs.StringVar(&c.crds, "crds", besideBinary("crds"), "install the CustomResourceDefinitions of the YAML files in this folder")
	namespaces := fs.String("namespaces", "istio-system", "make these namespaces at start, with commas between, as an installer of a mesh would; none if empty")
	fs.IntVar(&c.nodes, "nodes", 3, "number of nodes")
	pods := fs.String("pod-cidr", "10.244.0.0/16,fd00:244::/64", "ranges of pods' addresses, one for each family; a loopback range is allowed")
	fs.StringVar(&c.serviceCIDR, "service-cidr", "10.96.0.0/16,fd00:96::/112", "ranges of services' addresses, one for each family")
	fs.DurationVar(&c.stopAfter, "stop-after", 500*time.Millisecond, "how long the containers of a deleted pod go on running, within its grace period")
	fs.IntVar(&c.verbosity, "v", 0, "verbosity of kube.log in the state's folder")
	fs.BoolVar(&c.untilEOF, "until-eof", false, "end when standard input does")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.namespaces = strings.FieldsFunc(*namespaces, func(r rune) bool { return r == ',' })
	return c, c.check(fs.Args(), *pods)
}

func (c *config) check(rest []string, pods string) (err error) {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if c.nodes < 1 {
		return fmt.Errorf("--nodes: %d: there must be one at least", c.nodes)
	}
	for p := range strings.SplitSeq(pods, ",") {
		prefix, err := netip.ParsePrefix(p)
		if err != nil {
			return fmt.Errorf("--pod-cidr: %w", err)
		}
		c.podCIDRs = append(c.podCIDRs, prefix.Masked())
	}
	return nil
}

// besideBinary is a folder next to the executable; empty where there is none.
func besideBinary(name string) string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(exe), name)
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

func main() {
	began := time.Now()
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, c, began, os.Stdout)
	}
	switch {
	case err == flag.ErrHelp:
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// ready is printed when the cluster is ready. Programs read its first line.
const ready = `ready server=%[1]s kubeconfig=%[2]s took=%[3]s

  export KUBECONFIG=%[2]s
  kubectl get pods -A  # or any other client
  bin/moonsail serve --kubeconfig %[2]s --xds-plaintext-addr 127.0.0.1:15010  # the mesh's control plane

Pods run as far as Kubernetes knows; no container is started. Ctrl-C ends the cluster.
`

// run starts the parts, reports that they are ready, and ends them.
func run(ctx context.Context, c config, began time.Time, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.untilEOF {
		go func() { // ends with the process: nothing else reads standard input
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	st, err := openState(c)
	if err != nil {
		return err
	}
	defer st.close()
	k := &cluster{config: c, state: st}
	defer k.stop()
	if err := k.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it was interrupted before it was ready
		}
		return fmt.Errorf("%w\nsee also %s", err, st.path("kube.log"))
	}
	fmt.Fprintf(out, ready, k.api.url(), st.kubeconfig, time.Since(began).Round(time.Millisecond))
	select {
	case <-ctx.Done():
		return nil
	case err := <-k.api.ended:
		return fmt.Errorf("the API server has ended: %w", err)
	}
}
