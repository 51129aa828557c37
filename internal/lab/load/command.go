package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Command runs a load in a separate process. Binary is the command line of moonsail-lab.
func Command(ctx context.Context, binary []string, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, o.Duration+graceTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary[0], append(binary[1:len(binary):len(binary)], "load", string(text))...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr, cmd.WaitDelay = &out, &errOut, child.Attributes(), time.Second
	if err := child.OnThread(cmd.Run); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("load on %s: %w: %s", o.URL, err, strings.TrimSpace(errOut.String()))
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("load on %s answers %q: %w", o.URL, out.String(), err)
	}
	r.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return &r, nil
}

// graceTime is how long a load may take in addition to its duration: to start, connect and end.
const graceTime = 15 * time.Second
