package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// distributed are the programs that a node uses from the distribution, and Debian's packages of those that can be
// unpacked without being installed. runc needs cgo and libseccomp, so that it is not built here.
var distributed = []struct{ program, debian string }{
	{"runc", "runc"},
	{"nft", "nftables"},
	{"ip", ""},
	{"mount", ""},
	{"pivot_root", ""},
	{"bash", ""},
	{"nsenter", ""},
}

// distribution unpacks packages with the programs that this machine lacks into usr. It takes the newest version that the
// machine's package lists have, because mirrors drop superseded versions.
func (t Tools) distribution(ctx context.Context) error {
	usr := t.path("usr")
	if err := os.MkdirAll(usr, 0o755); err != nil {
		return err
	}
	var packages []string
	for _, d := range distributed {
		if t.has(d.program) {
			continue
		}
		if d.debian == "" {
			return fmt.Errorf("%s is missing: install iproute2, util-linux and bash", d.program)
		}
		packages = append(packages, d.debian)
	}
	if len(packages) == 0 {
		return nil
	}
	names := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is missing, and so is apt-get: install %[1]s with your package manager", names)
	}
	fmt.Fprintf(t.Log, "==> downloading Debian packages: %s\n", names)
	if err := t.unpack(ctx, packages, usr); err != nil {
		return fmt.Errorf("cannot download %s: %w: run apt-get update and try again, or apt-get install %[1]s", names, err)
	}
	return nil
}

func (t Tools) has(program string) bool {
	for _, dir := range []string{t.path("usr/sbin"), t.path("usr/bin"), "/usr/sbin", "/usr/bin"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// installLine is a line of apt-get --simulate for a package that would be installed.
var installLine = regexp.MustCompile(`(?m)^Inst (\S+)`)

// unpack downloads packages with what they need and this machine lacks, and unpacks them into usr.
func (t Tools) unpack(ctx context.Context, packages []string, usr string) error {
	args := append([]string{"--simulate", "--no-install-recommends", "install"}, packages...)
	plan, err := output(exec.CommandContext(ctx, "apt-get", args...))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(t.Dir, "packages")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left does no harm
	download := exec.CommandContext(ctx, "apt-get", "--quiet", "download")
	for _, line := range installLine.FindAllStringSubmatch(plan, -1) {
		download.Args = append(download.Args, line[1])
	}
	download.Dir = dir
	if _, err := output(download); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	for _, archive := range archives {
		if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "--extract", archive, root)); err != nil {
			return err
		}
	}
	// Packages may have /lib and /sbin beside /usr/lib and /usr/sbin. A node has only /usr.
	for _, from := range []string{"usr", "lib", "sbin", "bin"} {
		source := filepath.Join(root, from)
		if _, err := os.Stat(source); err != nil {
			continue
		}
		to := usr
		if from != "usr" {
			to = filepath.Join(usr, from)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if _, err := output(exec.CommandContext(ctx, "cp", "-a", source+"/.", to)); err != nil {
			return err
		}
	}
	return nil
}
