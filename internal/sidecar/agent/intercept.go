package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// undoWithin bounds the removal of the rules.
const undoWithin = 10 * time.Second

// intercept sets the rules. While they are set, the agent has Envoy's group, so that its own connections leave like
// Envoy's. undo may be called more than once.
func (a *agent) intercept(ctx context.Context) (undo func(), err error) {
	i := &a.Intercept
	if !i.Rules {
		return func() {}, nil
	}
	c, err := a.interceptConfig()
	if err == nil {
		err = c.CaptureServersOf(a.resolvConf())
	}
	if err != nil {
		return nil, err
	}
	group, err := a.takeGroup()
	if err != nil {
		return nil, err
	}
	backend, err := intercept.Apply(ctx, c, i.Backend)
	if err != nil {
		return nil, errors.Join(err, setGroup(group))
	}
	a.log.Info("connections are intercepted", "mode", c.Mode, "by", backend, "ipv6", c.IPv6)
	return sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
		defer cancel()
		if err := errors.Join(intercept.Undo(ctx), setGroup(group)); err != nil {
			a.log.Error("cannot remove the rules of interception: connections of the workload will fail after the end of the sidecar", "error", err)
		}
	}), nil
}

// interceptConfig combines flags, annotations and the ports of the sidecar.
func (s *settings) interceptConfig() (*intercept.Config, error) {
	set := s.Intercept.Settings.Annotated(s.Workload.Annotations)
	set.Mode = string(s.Interception)
	var own []string
	for _, p := range []uint16{s.ports.Status, s.ports.Health, s.ports.Prometheus} {
		own = append(own, strconv.Itoa(int(p)))
	}
	set.ExcludeInboundPorts = strings.Join(slices.DeleteFunc(append(own, set.ExcludeInboundPorts), func(w string) bool { return w == "" }), ",")
	if u := s.Intercept.User; u != nil {
		set.ProxyUID, set.ProxyGID = strconv.Itoa(int(u.UID)), strconv.Itoa(int(u.GID))
	}
	c, err := set.Parse()
	if err == nil {
		c.IPv6 = (&model.Proxy{IPs: s.Workload.IPs}).Families() != model.IPv4 // as Envoy's listeners
	}
	return c, err
}

// takeGroup changes this process's group to Envoy's, and returns the previous one.
func (s *settings) takeGroup() (was int, err error) {
	was = os.Getegid()
	if u := s.Intercept.User; u != nil {
		err = setGroup(int(u.GID))
	}
	return was, err
}

// setGroup changes the effective group of all threads.
func setGroup(gid int) error {
	if gid == os.Getegid() {
		return nil
	}
	if err := setEffectiveGroup(gid); err != nil {
		return fmt.Errorf("cannot change to group %d, which distinguishes the agent's connections from the workload's: %w: "+
			"run the agent as root, or as the user of --proxy-uid", gid, err)
	}
	return nil
}

// envoyUser returns the user of Envoy; nil: the agent's user.
func (s *settings) envoyUser() *envoy.User {
	u := s.Intercept.User
	if u == nil || int(u.UID) == os.Geteuid() && int(u.GID) == os.Getegid() {
		return nil
	}
	out := *u
	out.Transparent = s.Interception == model.InterceptTProxy
	return &out
}

// giveToEnvoy lets Envoy's user read the bootstrap in the work folder and use the socket, if it is another user.
func (b *bootstrapFile) giveToEnvoy() error {
	u := b.envoyUser()
	if u == nil {
		return nil
	}
	err := filepath.WalkDir(filepath.Dir(b.path), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return lend(path, d, u)
	})
	if err != nil {
		return fmt.Errorf("cannot give Envoy's user %d access to its configuration: %w: run the agent as root, or leave out --proxy-uid", u.UID, err)
	}
	return nil
}

// lend makes Envoy's user the owner of a file, and gives Envoy's group access to a folder. Folders keep their owner: with
// write access to one, Envoy could replace a file by a link, which the agent, possibly as root, would follow.
func lend(path string, d fs.DirEntry, u *envoy.User) error {
	if !d.IsDir() {
		return os.Lchown(path, int(u.UID), int(u.GID))
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	return errors.Join(os.Lchown(path, os.Geteuid(), int(u.GID)), os.Chmod(path, info.Mode()&^0o020|0o010))
}
