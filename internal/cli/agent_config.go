package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/terminal"
)

// wrongConfig makes what flags, or what stands for them, say wrongly a usage error.
func wrongConfig(err error) error {
	var wrong agent.ConfigError
	if errors.As(err, &wrong) {
		return terminal.UsageError{Err: err}
	}
	return err
}

// build makes the Config of flags, pod description and environment.
func (f *agentFlags) build(cmd *cobra.Command, environ []string) (*agent.Config, error) {
	c := f.config
	metadata, labels, err := agent.MetadataFromEnv(environ)
	if err != nil {
		return nil, err
	}
	for _, taken := range metadataFlags {
		delete(metadata, taken) // a flag holds it, and may have been given another value
	}
	c.Metadata = metadata
	if c.Workload, err = f.describe(labels); err != nil {
		return nil, err
	}
	c.Interception = model.Interception(f.interception)
	if f.proxyConfig != "" {
		if c.ProxyConfig, err = proxyconfig.Parse(f.proxyConfig, "--proxy-config (PROXY_CONFIG)"); err != nil {
			return nil, terminal.UsageError{Err: err}
		}
	}
	if err := f.findIn(environ, &c); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("concurrency") {
		c.Concurrency = &f.concurrency
	}
	if cmd.Flags().Changed("drain-time") {
		c.DrainTime = &f.drainTime
	}
	c.LeaveTimeout = &f.leaveTimeout
	if err := f.intercept.into(cmd, &c); err != nil {
		return nil, err
	}
	c.AccessLog = cmd.OutOrStdout()
	c.Log, err = f.logger(cmd, c.Workload)
	return &c, err
}

// describe tells which workload it is: by flags, which go before the pod's description; labels are of the
// environment, for a workload that has none otherwise.
func (f *agentFlags) describe(labels map[string]string) (w agent.Workload, err error) {
	w = f.workload
	if f.pod != "" {
		if _, err = readYAML("--pod", f.pod); err != nil {
			return w, err
		}
		if w, err = agent.ReadPod(f.pod, f.workload.Name); err != nil {
			return w, err
		}
		overrideWorkload(&w, &f.workload)
	}
	if len(w.Labels) == 0 {
		w.Labels = labels
	}
	if f.podInfo != "" {
		if err := w.ReadPodInfo(f.podInfo); err != nil {
			return w, err
		}
	}
	if f.locality != "" {
		w.Locality = model.ParseLocality(f.locality)
		if err := w.Locality.Check(); err != nil {
			return w, terminal.UsageError{Err: fmt.Errorf("--locality %w", err)}
		}
	}
	return w, nil
}

// findIn takes what the environment says of the workload, which is described already.
func (f *agentFlags) findIn(environ []string, c *agent.Config) (err error) {
	if c.CA.MountedCerts == "" {
		if c.CA.MountedCerts, err = agent.FindMountedCerts(environ); err != nil {
			return err
		}
	}
	if c.CPULimit, err = agent.FindCPULimit(environ); err != nil {
		return err
	}
	c.AppMetrics, err = agent.FindAppMetrics(environ, c.Workload.Annotations)
	return err
}

// metadataFlags are the ISTIO_META_ variables that flags take their values from.
var metadataFlags = []string{"WORKLOAD_NAME", "OWNER", "NODE_NAME", "CLUSTER_ID", "MESH_ID", "NETWORK", "INTERCEPTION_MODE"}

// overrideWorkload lets what flags said beat the pod description.
func overrideWorkload(w, flags *agent.Workload) {
	for _, s := range []struct{ into, from *string }{
		{&w.Namespace, &flags.Namespace}, {&w.ServiceAccount, &flags.ServiceAccount},
		{&w.WorkloadName, &flags.WorkloadName}, {&w.Owner, &flags.Owner}, {&w.NodeName, &flags.NodeName},
	} {
		if *s.from != "" {
			*s.into = *s.from
		}
	}
	if len(flags.IPs) > 0 {
		w.IPs = flags.IPs
	}
	if len(flags.Labels) > 0 {
		w.Labels = flags.Labels
	}
}

// logger names the sidecar in each record: many may share a terminal.
func (f *agentFlags) logger(cmd *cobra.Command, w agent.Workload) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, terminal.UsageError{Err: fmt.Errorf("--log-level %q is none of debug, info, warn, error", f.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch f.logFormat {
	case "text":
		handler = slog.NewTextHandler(cmd.ErrOrStderr(), options)
	case "json":
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	default:
		return nil, terminal.UsageError{Err: fmt.Errorf("--log-format %q is none of text, json", f.logFormat)}
	}
	return slog.New(handler).With("sidecar", w.Name), nil
}
