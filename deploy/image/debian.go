package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Envoy's release needs glibc only. Debian's package has it for each architecture.
const (
	libraryPackage = "libc6"
	debianSuite    = "bookworm"
)

// debianSources names the archive and its signer. Security fixes come from the second one first.
const debianSources = `Types: deb
URIs: http://deb.debian.org/debian
Suites: ` + debianSuite + `
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: ` + debianSuite + `-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`

// DebianLibraries unpacks Debian's glibc for an architecture below dir, unless it is there, and returns the folder with the
// libraries and the name of the package. apt verifies Debian's signature. Its lists and caches stay below dir: nothing
// of the machine changes, and no root is needed.
func DebianLibraries(ctx context.Context, architecture, dir string) (root, name string, err error) {
	root, err = filepath.Abs(filepath.Join(dir, architecture))
	if err != nil {
		return "", "", err
	}
	if known, err := os.ReadFile(filepath.Join(root, "PACKAGE")); err == nil {
		return root, strings.TrimSpace(string(known)), nil
	}
	if err := os.RemoveAll(root); err != nil {
		return "", "", err
	}
	work := filepath.Join(root, "apt")
	for _, d := range []string{"lists/partial", "cache/archives/partial", "deb"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o755); err != nil {
			return "", "", err
		}
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.WriteFile(filepath.Join(work, "debian.sources"), []byte(debianSources), 0o600); err != nil {
		return "", "", err
	}
	apt := []string{
		"-qq", "-o", "APT::Architecture=" + architecture, "-o", "APT::Architectures::=" + architecture, "-o", "Dir::State::Lists=" + work + "/lists",
		"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + work + "/cache", "-o", "Dir::Etc::SourceList=" + work + "/debian.sources",
		"-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3",
	}
	download := filepath.Join(work, "deb")
	if err := aptGet(ctx, architecture, download, append(apt, "update")...); err != nil {
		return "", "", err
	}
	if err := aptGet(ctx, architecture, download, append(apt, "download", libraryPackage)...); err != nil {
		return "", "", err
	}
	packages, err := filepath.Glob(filepath.Join(download, "*.deb"))
	if err != nil || len(packages) != 1 {
		return "", "", fmt.Errorf("apt-get download %s: %d packages instead of one", libraryPackage, len(packages))
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", packages[0], root).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("dpkg-deb --extract %s: %w: %s", packages[0], err, out)
	}
	// The name is NAME_VERSION_ARCHITECTURE.deb. apt writes the colon of a version as %3a.
	name = strings.ReplaceAll(strings.TrimSuffix(filepath.Base(packages[0]), ".deb"), "%3a", ":")
	return root, name, os.WriteFile(filepath.Join(root, "PACKAGE"), []byte(name+"\n"), 0o600)
}

func aptGet(ctx context.Context, architecture, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	const instead = "or unpack Debian's " + libraryPackage + " for %[1]s into DIR/%[1]s and give --libraries DIR"
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("libraries for %s: apt-get is not on the PATH: build on Debian or Ubuntu, "+instead, architecture)
	case err != nil:
		return fmt.Errorf("libraries for %s: apt-get cannot fetch %s: %w: %s\nInstall debian-archive-keyring if the key is missing, "+instead,
			architecture, libraryPackage, err, strings.TrimSpace(string(out)))
	}
	return nil
}
