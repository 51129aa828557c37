// Command pictures draws the pictures of docs/images from real runs:
//
//	demo.svg                  a terminal recording of "moonsail demo"
//	path-of-a-change.svg       the stages of one change in that demo, with their times
//	dashboard-light.png, dashboard-dark.png   the dashboard of that demo
//	mesh-light.png, mesh-dark.png, change.png, proxy.png   its pages
//	lab-report.png            a report of moonsail-lab
//
// It needs bin/moonsail and bin/moonsail-lab, Envoy, chromium and script (util-linux). Run it with
// "make pictures".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	root := flag.String("root", ".", "root `DIR` of the repository")
	only := flag.Bool("dashboard", false, "draw only the pictures of the dashboard")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := draw(ctx, *root, *only); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func draw(ctx context.Context, root string, onlyDashboard bool) error {
	for _, program := range []string{"chromium", "script"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: install it, on Debian with: apt-get install chromium bsdutils", program)
		}
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "moonsail-pictures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	a := &artist{root: root, work: work, images: filepath.Join(root, "docs", "images"), onlyDashboard: onlyDashboard}
	if err := a.drawDemo(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if onlyDashboard {
		return nil
	}
	if err := a.drawReport(ctx); err != nil {
		return fmt.Errorf("report of the lab: %w", err)
	}
	return nil
}

// artist draws into images what it runs in work.
type artist struct {
	root, work, images string
	onlyDashboard      bool
}

func (a *artist) moonsail(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(a.root, "bin", "moonsail"), args...)
}

// write writes a picture and prints its path.
func (a *artist) write(name string, content []byte) error {
	fmt.Println("==> docs/images/" + name)
	return os.WriteFile(filepath.Join(a.images, name), content, 0o644)
}

// drawReport runs the throughput experiment in its quick form and photographs its report.
func (a *artist) drawReport(ctx context.Context) error {
	fmt.Println("==> running moonsail-lab throughput --quick (about two minutes)")
	out := filepath.Join(a.work, "report")
	lab := exec.CommandContext(ctx, filepath.Join(a.root, "bin", "moonsail-lab"), "throughput", "--quick", "--out", out)
	lab.Dir, lab.Stdout, lab.Stderr = a.root, os.Stdout, os.Stderr
	if err := lab.Run(); err != nil {
		return err
	}
	return a.photograph(ctx, photo{name: "lab-report.png", url: "file://" + filepath.Join(out, "report.html"), width: 1400, height: 1150})
}
