package cluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Tools is the folder with everything that a node runs:
//
//	bin/      programs
//	images/   archives that each node imports when it starts
//	usr/      programs of the distribution that this machine lacks, laid over its /usr
//	stamps/   what each program was built from
//	run/      state of each cluster, by name
type Tools struct {
	Dir    string // absolute
	Source string // folder of this module, absolute
	Log    io.Writer
}

// program is a program that is built from the module.
type program struct {
	name string
	pkg  string
	took string // on 2 cores without a build cache; empty: seconds
	// entrypoint makes an image localhost/NAME:1 of the program, too.
	entrypoint bool
	user       string // of the image
}

const (
	containerdCmd = "github.com/containerd/containerd/v2/cmd/"
	cniPlugins    = "github.com/containernetworking/plugins/plugins/"
)

var programs = []program{
	{name: "kube", pkg: "./programs/kube", took: "10 to 20 minutes"},
	{name: "containerd", pkg: containerdCmd + "containerd", took: "1 minute"},
	{name: "containerd-shim-runc-v2", pkg: containerdCmd + "containerd-shim-runc-v2"},
	{name: "ctr", pkg: containerdCmd + "ctr"},
	{name: "bridge", pkg: cniPlugins + "main/bridge"},
	{name: "loopback", pkg: cniPlugins + "main/loopback"},
	{name: "host-local", pkg: cniPlugins + "ipam/host-local"},
	{name: "portmap", pkg: cniPlugins + "meta/portmap"},
	{name: "helm", pkg: "helm.sh/helm/v3/cmd/helm", took: "1 minute"},
	{name: "coredns", pkg: "./programs/coredns", took: "1 minute", entrypoint: true},
	{name: "pause", pkg: "./programs/pause", entrypoint: true, user: "65535:65535"},
	{name: "app", pkg: "./programs/app", entrypoint: true, user: "1000:1000"},
}

// links are names of bin/kube.
var links = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "kubeadm",
}

// Build builds what is missing or was built from other sources.
func (t Tools) Build(ctx context.Context) error {
	for _, dir := range []string{"bin", "images", "stamps"} {
		if err := os.MkdirAll(t.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := t.distribution(ctx); err != nil {
		return err
	}
	version, err := t.goOutput(ctx, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	flags := "-s -w -X k8s.io/component-base/version.gitVersion=" + version
	for _, p := range programs {
		if err := t.program(ctx, p, flags); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
	}
	for _, name := range links {
		if err := os.Symlink("kube", t.path("bin", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (t Tools) path(parts ...string) string {
	return filepath.Join(append([]string{t.Dir}, parts...)...)
}

func (t Tools) program(ctx context.Context, p program, flags string) error {
	stamp, err := t.stampOf(ctx, p, flags)
	if err != nil {
		return err
	}
	stampFile := t.path("stamps", p.name)
	if old, err := os.ReadFile(stampFile); err == nil && string(old) == stamp {
		return nil
	}
	began := time.Now()
	note := ""
	if p.took != "" {
		note = " (" + p.took + " the first time)"
	}
	fmt.Fprintf(t.Log, "==> building %s%s\n", p.name, note)
	out := t.path("bin", p.name)
	if err := t.compile(ctx, p.pkg, out, flags); err != nil {
		return err
	}
	if p.entrypoint {
		if err := writeImage(t.path("images", p.name+".tar"), "localhost/"+p.name+":1", out, p.user); err != nil {
			return err
		}
	}
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.Log, "    %d MiB in %s\n", info.Size()>>20, time.Since(began).Round(time.Second))
	return os.WriteFile(stampFile, []byte(stamp), 0o644)
}

// packageLine is a line that go build -v prints for a package that it compiles.
var packageLine = regexp.MustCompile(`^[A-Za-z0-9._~/-]+$`)

// compile runs go build, and prints how many packages are compiled.
func (t Tools) compile(ctx context.Context, pkg, out, flags string) error {
	all, err := t.goOutput(ctx, "list", "-deps", pkg)
	if err != nil {
		return err
	}
	cmd := t.goCommand(ctx, "build", "-v", "-ldflags", flags, "-o", out, pkg)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	compiled := 0
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if !packageLine.MatchString(lines.Text()) {
			fmt.Fprintln(t.Log, lines.Text())
			continue
		}
		if compiled++; compiled%200 == 0 {
			fmt.Fprintf(t.Log, "    %d of at most %d packages\n", compiled, strings.Count(all, "\n")+1)
		}
	}
	return cmd.Wait()
}

// stampOf identifies what a program is built from: versions of modules, the Go version, flags, and our files.
func (t Tools) stampOf(ctx context.Context, p program, flags string) (string, error) {
	version, err := t.goOutput(ctx, "env", "GOVERSION", "GOARCH")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, version, p, flags)
	files := []string{filepath.Join(t.Source, "go.mod"), filepath.Join(t.Source, "go.sum")}
	if strings.HasPrefix(p.pkg, "./") {
		own, err := filepath.Glob(filepath.Join(t.Source, p.pkg, "*.go"))
		if err != nil {
			return "", err
		}
		files = append(files, own...)
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, path, len(content))
		sum.Write(content)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

func (t Tools) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	return cmd
}

func (t Tools) goOutput(ctx context.Context, args ...string) (string, error) {
	out, err := output(t.goCommand(ctx, args...))
	return strings.TrimSpace(out), err
}

// output runs a command. The error has what the command printed to stderr.
func output(cmd *exec.Cmd) (string, error) {
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(failure.String()))
	}
	return string(out), nil
}
