package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/moonsail/moonsail/test/kubernetes/cluster"
)

// image is the image of the control plane and of sidecars. With a tag other than latest the kubelet does not pull it.
const image = "moonsail:e2e"

var (
	// root is the folder of the repository.
	root = func() string {
		dir, err := filepath.Abs("../../..")
		if err != nil {
			panic(err)
		}
		return dir
	}()
	// before lists the cluster's objects before the installation. It is empty if another process installed.
	before objects
	// testCluster is the cluster of all tests. owned reports whether this process runs it.
	testCluster *cluster.Cluster
	owned       bool
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "NOT TESTED: real Pods, which need root: sudo -E make cluster-e2e")
		if os.Getenv("ALLOW_SKIP") == "1" {
			return
		}
		fmt.Fprintln(os.Stderr, "ALLOW_SKIP=1 permits that")
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs the tests, and ends the cluster after them, also when ctx ends before.
func run(ctx context.Context, m *testing.M) (code int, err error) {
	tools := cluster.Tools{
		Dir: filepath.Join(root, ".tools", "kubernetes"), Source: filepath.Join(root, "test", "kubernetes"), Log: os.Stdout,
	}
	if name := os.Getenv("E2E_CLUSTER"); name != "" {
		testCluster, err = cluster.Open(tools, name)
	} else {
		owned = true
		if err := tools.Build(ctx); err != nil {
			return 1, err
		}
		testCluster, err = cluster.Start(ctx, cluster.Options{
			Tools: tools, Name: "e2e", Nodes: 2, Kubeconfig: filepath.Join(root, "bin", "kubeconfig-e2e"),
		})
	}
	if err != nil {
		return 1, err
	}
	if owned {
		defer func() {
			if stopErr := testCluster.Stop(); err == nil {
				err = stopErr
			}
		}()
	}
	if err := install(ctx); err != nil {
		return 1, err
	}
	ended := make(chan int, 1)
	go func() { ended <- m.Run() }()
	select {
	case code = <-ended:
		return code, nil
	case <-ctx.Done():
		return 130, ctx.Err()
	}
}

// install loads the image and installs the control plane from nothing, unless E2E_CLUSTER has it.
func install(ctx context.Context) error {
	if _, err := kubectlOutput(ctx, nil, "-n", "istio-system", "rollout", "status", "deployment/moonsail", "--timeout=1s"); err == nil {
		return nil
	}
	began := time.Now()
	archives, err := filepath.Glob(filepath.Join(root, "dist", "image", "*-"+runtime.GOARCH+".tar"))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("dist/image has no image: run make image IMAGE=%s", image)
	}
	if err := testCluster.Load(ctx, archives...); err != nil {
		return err
	}
	fmt.Printf("==> loaded the image into each node in %.1f s\n", time.Since(began).Seconds())
	if before, err = listObjects(ctx); err != nil {
		return err
	}
	began = time.Now()
	out, err := moonsail(ctx, "install", "--image", image)
	if err != nil {
		return err
	}
	fmt.Printf("==> installed the control plane in %.1f s: %s", time.Since(began).Seconds(), out)
	return nil
}

// moonsail runs the command with access to the cluster. The error has what it printed.
func moonsail(ctx context.Context, args ...string) (string, error) {
	return moonsailOf(ctx, "image", args...)
}

// moonsailOf runs the command that is in a folder of dist.
func moonsailOf(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "dist", dir, "moonsail-"+runtime.GOARCH), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+testCluster.Kubeconfig)
	return outputOf(cmd, "moonsail", args)
}

// helm runs helm with access to the cluster.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := outputOf(testCluster.Tool(t.Context(), "helm", args...), "helm", args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// chart returns the folder of a chart.
func chart(name string) string { return filepath.Join(root, "deploy", "charts", name) }

// full reports whether tests run in full, as in make e2e-full.
func full() bool { return os.Getenv("E2E_FULL") == "1" }

// requireFull skips a test that is too long for make cluster-e2e.
func requireFull(t *testing.T) {
	t.Helper()
	if !full() {
		t.Skip("runs in make e2e-full (E2E_FULL=1)")
	}
}
