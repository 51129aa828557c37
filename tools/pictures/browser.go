package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// photo is a picture of a page in a window of the given size, in CSS pixels.
type photo struct {
	name, url     string
	page          string // the fragment of the dashboard's URL
	width, height int
	dark          bool
}

// photograph writes a PNG of a page, two seconds after it was loaded.
func (a *artist) photograph(ctx context.Context, p photo) error {
	scheme := "1" // blink::mojom::PreferredColorScheme: 0 is dark, 1 is light
	if p.dark {
		scheme = "0"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	path := filepath.Join(a.images, p.name)
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+filepath.Join(a.work, "chromium-"+strconv.FormatInt(time.Now().UnixNano(), 36)),
		"--blink-settings=preferredColorScheme="+scheme, "--force-device-scale-factor=1.5", "--timeout=8000",
		fmt.Sprintf("--window-size=%d,%d", p.width, p.height), "--screenshot="+path, p.url)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("chromium: %w\n%s", err, out)
	}
	fmt.Println("==> docs/images/" + p.name)
	return nil
}
