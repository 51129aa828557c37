package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups are the control groups of one node: one in each hierarchy of version 1, or one of version 2.
type cgroups struct {
	folders []string // of version 1
	unified string   // folder of version 2, which may be mounted beside version 1 without controllers; empty: none
}

func cgroupsOf(group string) (cgroups, error) {
	var root unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &root); err != nil {
		return cgroups{}, fmt.Errorf("%s: %w: mount control groups", cgroupRoot, err)
	}
	if root.Type == unix.CGROUP2_SUPER_MAGIC {
		return cgroups{unified: filepath.Join(cgroupRoot, group)}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return cgroups{}, err
	}
	var out cgroups
	for _, e := range entries {
		folder := filepath.Join(cgroupRoot, e.Name(), group)
		switch {
		case !e.IsDir(): // a link, such as cpu to cpu,cpuacct
		case e.Name() == "unified":
			out.unified = folder
		default:
			out.folders = append(out.folders, folder)
		}
	}
	if len(out.folders) == 0 {
		return cgroups{}, fmt.Errorf("%s: no control groups are mounted: mount them", cgroupRoot)
	}
	return out, nil
}

// all returns the folders of both versions.
func (c cgroups) all() []string {
	if c.unified == "" {
		return c.folders
	}
	return append(slices.Clone(c.folders), c.unified)
}

func (c cgroups) create() error {
	for _, folder := range c.all() {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("create a control group: %w", err)
		}
	}
	for _, folder := range c.folders {
		// No process may enter a new group of cpuset until it has CPUs and memory nodes.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(filepath.Dir(folder), name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, name), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// start starts a process in the groups, where it is from its first instant: its cgroup namespace has them as the root.
// The caller runs onOwnThread, because the thread enters the groups, too.
func (c cgroups) start(cmd *exec.Cmd) error {
	thread := []byte(strconv.Itoa(unix.Gettid()))
	for _, folder := range c.folders {
		if err := os.WriteFile(filepath.Join(folder, "tasks"), thread, 0o644); err != nil {
			return fmt.Errorf("enter a control group: %w", err)
		}
	}
	if c.unified != "" {
		folder, err := os.Open(c.unified)
		if err != nil {
			return err
		}
		defer func() { _ = folder.Close() }() // it is only read
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
	}
	return cmd.Start()
}

// remove removes the groups and those below, when their processes have ended.
func (c cgroups) remove() error {
	var err error
	for range 100 {
		err = nil
		for _, folder := range c.all() {
			err = errors.Join(err, removeGroup(folder))
		}
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // a group is busy until its last process has ended
	}
	return fmt.Errorf("remove control groups: %w", err)
}

func removeGroup(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(folder, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: folder, Err: err}
	}
	return nil
}
