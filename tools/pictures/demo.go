package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// dashboardURL is the dashboard of a demo, which uses the control plane's default port.
const (
	dashboardURL = "http://127.0.0.1:15014/dashboard"
	trafficURL   = "http://127.0.0.1:15014/debug/traffic"
)

// drawDemo records the demo, then draws its dashboard and one of its changes while it is left running.
func (a *artist) drawDemo(ctx context.Context) error {
	shop := filepath.Join(a.work, "shop")
	lines, stop, err := a.record(ctx, shop)
	if err != nil {
		return err
	}
	defer stop()
	if a.onlyDashboard {
		return a.drawDashboard(ctx)
	}
	if err := a.write("demo.svg", recording(lines)); err != nil {
		return err
	}
	if err := a.drawChange(ctx, filepath.Join(shop, "config", "routing", "reviews.yaml")); err != nil {
		return err
	}
	return a.drawDashboard(ctx)
}

// drawDashboard photographs the pages of the dashboard.
func (a *artist) drawDashboard(ctx context.Context) error {
	measured, stop := context.WithCancel(ctx)
	defer stop()
	go readTraffic(measured) // ends with the photographs
	photos := []photo{
		{name: "dashboard-light.png", height: 860}, {name: "dashboard-dark.png", height: 860, dark: true},
		{name: "mesh-light.png", page: "#/mesh", height: 720}, {name: "mesh-dark.png", page: "#/mesh", height: 720, dark: true},
		{name: "change.png", page: "#/change/4", height: 560}, {name: "proxy.png", page: "#/proxy/frontend-1.shop", height: 740},
	}
	for _, p := range photos {
		p.url, p.width = dashboardURL+p.page, 1280
		if err := a.photograph(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// readTraffic has the control plane measure calls, so that a picture has rates: they need two measurements.
func readTraffic(ctx context.Context) {
	for ctx.Err() == nil {
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, trafficURL, http.NoBody); err == nil {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// record runs the demo on a pseudo-terminal until its last step. stop ends what it left running.
func (a *artist) record(ctx context.Context, shop string) (lines []line, stop func(), err error) {
	fmt.Println("==> recording moonsail demo")
	cmd := exec.CommandContext(ctx, "script", "--quiet", "--return", "--flush", "--command",
		fmt.Sprintf("stty cols %d; exec '%s' demo --keep --dir '%s'", columns, filepath.Join(a.root, "bin", "moonsail"), shop), "/dev/null")
	cmd.Env, cmd.Stderr = append(os.Environ(), "TERM=xterm-256color"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out) // until the demo has ended all of its processes
		_ = cmd.Wait()
	}
	lines, err = untilKept(out, shop)
	if err != nil {
		stop()
		return nil, nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the pipe, which stop closes
	return lines, stop, nil
}

var lastLine = regexp.MustCompile(`\d+ requests, none lost`)

// untilKept reads lines with the time of their arrival, up to the demo's summary.
func untilKept(out io.Reader, shop string) ([]line, error) {
	var lines []line
	start := time.Now()
	in := bufio.NewScanner(out)
	for in.Scan() {
		text := strings.TrimRight(in.Text(), "\r")
		text = text[strings.LastIndexByte(text, '\r')+1:] // what a progress line was overwritten with
		lines = append(lines, line{at: time.Since(start), text: shorten(text, shop)})
		if lastLine.MatchString(text) {
			return lines, nil
		}
	}
	return nil, errors.Join(errors.New("the demo ended before its summary"), in.Err())
}

var envoyPath = regexp.MustCompile(`\S*/(\.tools/envoy/\S+)`)

// shorten leaves out where the repository and the demo's folder are.
func shorten(text, shop string) string {
	return envoyPath.ReplaceAllString(strings.ReplaceAll(text, shop, "shop"), "$1")
}

// drawChange changes weights ten times, and draws the stages of the last change.
func (a *artist) drawChange(ctx context.Context, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for i := range 10 {
		weights := []string{fmt.Sprint(10 * i), fmt.Sprint(100 - 10*i)}
		n := -1
		now := weight.ReplaceAllStringFunc(string(content), func(string) string { n++; return "weight: " + weights[n%2] })
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			return err
		}
		if out, err := a.moonsail(ctx, "wait", file, "--timeout", "30s").CombinedOutput(); err != nil {
			return fmt.Errorf("moonsail wait: %w\n%s", err, out)
		}
	}
	out, err := a.moonsail(ctx, "explain", "virtualservice/reviews", "-n", "shop", "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("moonsail explain: %w", err)
	}
	var explained struct {
		Change struct {
			Stages  stages
			Proxies struct{ Acked int }
		}
	}
	if err := json.Unmarshal(out, &explained); err != nil {
		return err
	}
	return a.write("path-of-a-change.svg", pathOfAChange(explained.Change.Stages, explained.Change.Proxies.Acked))
}

var weight = regexp.MustCompile(`weight: \d+`)
