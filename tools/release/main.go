// The program release makes the files of a release in a folder: programs, charts, images, a bill of materials and checksums.
// Two runs from one commit write equal bytes: programs have no paths, archives have no times, and the bill has the time of
// the commit.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// release is what all steps need.
type release struct {
	root, out string // the repository, and the folder to write
	version   string // without a "v"
	commit    string
	time      time.Time // of the commit
	image     string    // name of the image, without a tag
	libraries string    // source of Envoy's libraries, for moonsail-image
	dirty     bool      // allow uncommitted changes
	only      string    // steps to run; empty: all
}

// platforms of programs. The agent and the control plane need Linux; on others, moonsail is the command line.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

// version of a release, as in Semantic Versioning.
var version = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	var r release
	flag.StringVar(&r.root, "root", ".", "`DIR` of the repository")
	flag.StringVar(&r.out, "out", "dist/release", "`DIR` to write; it is replaced")
	flag.StringVar(&r.version, "version", "", "`VERSION` of the release, such as 0.1.0")
	flag.StringVar(&r.image, "image", "moonsail", "`NAME` of the image, without a tag")
	flag.StringVar(&r.libraries, "libraries", "debian", "source of Envoy's libraries (see moonsail-image)")
	flag.BoolVar(&r.dirty, "dirty", false, "allow uncommitted changes; the release is then not reproducible")
	flag.StringVar(&r.only, "only", "", "`STEPS` to run, separated by commas: "+strings.Join(names(), ", ")+" (default: all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// step makes some files of the release.
type step struct {
	name string
	run  func(*release, context.Context) error
}

// steps in their order. The bill of materials reads programs and images, and the checksums read all files.
var steps = []step{
	{"programs", (*release).programs},
	{"charts", (*release).charts},
	{"images", (*release).images},
	{"sbom", (*release).bill},
	{"checksums", (*release).checksums},
}

func names() (out []string) {
	for _, s := range steps {
		out = append(out, s.name)
	}
	return out
}

func (r *release) run(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for _, s := range steps {
		if r.only != "" && !strings.Contains(","+r.only+",", ","+s.name+",") {
			continue
		}
		start := time.Now()
		if err := s.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stdout, "==> %s: %.0f s\n", s.name, time.Since(start).Seconds())
	}
	return nil
}

// prepare checks the options, reads the commit and empties the folder.
func (r *release) prepare(ctx context.Context) (err error) {
	if r.version = strings.TrimPrefix(r.version, "v"); !version.MatchString(r.version) {
		return fmt.Errorf("-version %q: not a version: use one such as 0.1.0", r.version)
	}
	for _, name := range strings.Split(r.only, ",") {
		if r.only != "" && !slices.Contains(names(), name) {
			return fmt.Errorf("-only %q: unknown step: use %s", name, strings.Join(names(), ", "))
		}
	}
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if !filepath.IsAbs(r.out) {
		r.out = filepath.Join(r.root, r.out)
	}
	changes, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && !r.dirty {
		return fmt.Errorf("the repository has uncommitted changes: commit them, or use -dirty:\n%s", changes)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	committed, err := r.git(ctx, "show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	if r.time, err = time.Parse(time.RFC3339, committed); err != nil {
		return err
	}
	r.time = r.time.UTC()
	if r.only == "" {
		for _, old := range []string{r.out, r.stage()} {
			if err := os.RemoveAll(old); err != nil {
				return err
			}
		}
	}
	return os.MkdirAll(r.out, 0o755)
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// command runs a program in the repository, with further environment variables. Its output is part of the error.
func (r *release) command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// stage returns a folder for intermediate files, beside those of the release.
func (r *release) stage(parts ...string) string {
	return filepath.Join(append([]string{r.out + ".stage"}, parts...)...)
}

// program returns the file of a program before it is packed.
func (r *release) program(name string, p platform) string { return r.stage(p.String(), name) }

// programsOf lists the programs of a platform. The experiments run on Linux only.
func programsOf(p platform) []string {
	if p.os == "linux" {
		return []string{"moonsail", "moonsail-lab"}
	}
	return []string{"moonsail"}
}

// programs builds and packs the programs.
func (r *release) programs(ctx context.Context) error {
	for _, p := range platforms {
		for _, name := range programsOf(p) {
			if err := r.build(ctx, name, p); err != nil {
				return err
			}
			folder := name + "-" + r.version
			err := pack(filepath.Join(r.out, folder+"-"+p.String()+".tar.gz"), []entry{
				{name: folder + "/LICENSE", file: filepath.Join(r.root, "LICENSE")},
				{name: folder + "/" + name, file: r.program(name, p), mode: 0o755},
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) build(ctx context.Context, name string, p platform) error {
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS="}
	return r.command(ctx, env, "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -X github.com/moonsail/moonsail/internal/version.release="+r.version, "-o", r.program(name, p), "./cmd/"+name)
}

// images makes the container images for both architectures.
func (r *release) images(ctx context.Context) error {
	dir := r.stage("image")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, arch := range []string{"amd64", "arm64"} {
		p := platform{"linux", arch}
		if err := r.build(ctx, "moonsail-cni", p); err != nil { // only images have it
			return err
		}
		for _, program := range []string{"moonsail", "moonsail-cni"} {
			if err := copyFile(r.program(program, p), filepath.Join(dir, program+"-"+arch)); err != nil {
				return err
			}
		}
	}
	err := r.command(ctx, []string{"GOFLAGS=", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH}, "go", "run", "./cmd/moonsail-image", "--name", r.image+":"+r.version, "--out", dir,
		"--platforms", "linux/amd64,linux/arm64", "--libraries", r.libraries, "--version", r.version)
	if err != nil {
		return err
	}
	for from, to := range map[string]string{
		"moonsail-amd64.tar": "linux-amd64.tar", "moonsail-arm64.tar": "linux-arm64.tar", "moonsail.oci.tar": "oci.tar",
	} {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(r.out, "moonsail-image-"+r.version+"-"+to)); err != nil {
			return err
		}
	}
	return nil
}
