package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// preview shows what the first canary would do, before it is applied.
func (d *demo) preview(ctx context.Context) error {
	d.beginStep("Preview: which calls would a canary decide differently?")
	file := canaryManifest(90, 10)
	file.Path = "canary.yaml"
	dir := filepath.Join(d.dir, "preview") // beside the configuration, which stays as it is
	if err := write(dir, file); err != nil {
		return fmt.Errorf("writing the canary: %w", err)
	}
	err := d.command(ctx, dir, "diff", filepath.Join("..", filepath.Base(d.config)), "-f", file.Path)
	var differs *exec.ExitError
	switch {
	case err == nil:
		return errors.New("preview: moonsail diff found no call that a canary decides differently")
	case !errors.As(err, &differs) || differs.ExitCode() != diffDiffers:
		return err
	}
	return nil
}

// diffDiffers is the exit status of `moonsail diff` if calls are decided differently.
const diffDiffers = 1

// command prints a command of moonsail, runs it in a directory ("": the current one), and prints its output.
func (d *demo) command(ctx context.Context, dir string, args ...string) error {
	text := "moonsail " + strings.Join(args, " ")
	fmt.Fprintf(d.out, "\n%s\n", d.style.Bold("$ "+text))
	var failed bytes.Buffer
	cmd := exec.CommandContext(ctx, d.Binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, d.out, &failed
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", text, err, strings.TrimSpace(failed.String()))
	}
	return nil
}
