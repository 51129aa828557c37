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
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Intercept is how the workload's connections come to Envoy: by rules of the network
// namespace that the agent runs in.
type Intercept struct {
	// Rules are set before Envoy starts, and undone when it has ended. Without, somebody else
	// has set them (an init container), or nobody.
	Rules    bool
	Settings intercept.Settings // the pod's annotations and the mode are applied to them
	Backend  intercept.Backend
	// User is whom Envoy runs as, by which its own connections are told from others'. nil: as
	// the agent does.
	User *envoy.User
	// ResolvConf says whom the DNS proxy asks for what is not of the mesh; empty: /etc/resolv.conf.
	ResolvConf string
}

// undoWithin bounds how long the rules may take to go.
const undoWithin = 10 * time.Second

// intercept sets the rules. The agent's own connections are to go out as Envoy's do: it takes
// Envoy's group for as long as they are set. undo may be called again.
func (a *agent) intercept(ctx context.Context) (undo func(), err error) {
	i := &a.Intercept
	if !i.Rules {
		return func() {}, nil
	}
	c, err := a.interceptConfig()
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
			a.log.Error("interception rules may still be in force, and the sidecar has ended: connections of the workload will fail", "error", err)
		}
	}), nil
}

// interceptConfig is what flags, annotations and ports of the sidecar come to.
func (a *agent) interceptConfig() (*intercept.Config, error) {
	s := a.Intercept.Settings.Annotated(a.Workload.Annotations)
	s.Mode = string(a.Interception)
	var own []string
	for _, p := range []uint16{a.ports.Status, a.ports.Health, a.ports.Prometheus} {
		own = append(own, strconv.Itoa(int(p)))
	}
	s.ExcludeInboundPorts = strings.Join(slices.DeleteFunc(append(own, s.ExcludeInboundPorts), func(w string) bool { return w == "" }), ",")
	if u := a.Intercept.User; u != nil {
		s.ProxyUID, s.ProxyGID = strconv.Itoa(int(u.UID)), strconv.Itoa(int(u.GID))
	}
	c, err := s.Parse()
	if err == nil {
		c.IPv6 = (&model.Proxy{IPs: a.Workload.IPs}).Families() != model.IPv4 // as Envoy's listeners
	}
	return c, err
}

// takeGroup makes Envoy's group this process's, and says which it was.
func (a *agent) takeGroup() (was int, err error) {
	was = os.Getegid()
	if u := a.Intercept.User; u != nil {
		err = setGroup(int(u.GID))
	}
	return was, err
}

// setGroup changes the effective group of all threads.
func setGroup(gid int) error {
	if gid == os.Getegid() {
		return nil
	}
	if err := syscall.Setresgid(-1, gid, -1); err != nil {
		return fmt.Errorf("the agent cannot take the group %d, by which its connections are told from the workload's: %w: "+
			"run it as root, or as the user of --proxy-uid", gid, err)
	}
	return nil
}

// envoyUser is whom Envoy runs as; nil: as we do.
func (s *settings) envoyUser() *envoy.User {
	u := s.Intercept.User
	if u == nil || int(u.UID) == os.Geteuid() && int(u.GID) == os.Getegid() {
		return nil
	}
	out := *u
	out.Transparent = s.Interception == model.InterceptTProxy
	return &out
}

// giveToEnvoy lets Envoy, where that is another user, read the bootstrap in the work folder, and call the socket.
func (a *agent) giveToEnvoy() error {
	u := a.envoyUser()
	if u == nil {
		return nil
	}
	err := filepath.WalkDir(filepath.Dir(a.bootstrap), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return lend(path, d, u)
	})
	if err != nil {
		return fmt.Errorf("the user %d of Envoy would not get its configuration: %w: run the agent as root, or leave --proxy-uid out", u.UID, err)
	}
	return nil
}

// lend makes a file Envoy's, and lets Envoy's group through a folder. Folders stay ours: who may change one could put
// a link where we, who may be root, write or walk the next time.
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
