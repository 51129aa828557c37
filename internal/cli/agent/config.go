package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/scrape"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/terminal"
)

// asUsage makes an error of the configuration a usage error: the configuration comes from flags.
func asUsage(err error) error {
	var wrong sidecar.ConfigError
	if errors.As(err, &wrong) {
		return terminal.UsageError{Err: err}
	}
	return client.NoEnvoy(err)
}

// build makes the agent's configuration of flags, Pod and environment.
func (f *flags) build(cmd *cobra.Command, environ []string) (*sidecar.Config, error) {
	c := f.config
	metadata, labels, err := sidecar.MetadataFromEnv(environ)
	if err != nil {
		return nil, err
	}
	for _, v := range variables { // the flag has the value, and the command line may have changed it
		if key, ok := strings.CutPrefix(v.name, sidecar.MetadataPrefix); ok {
			delete(metadata, key)
		}
	}
	c.Metadata = metadata
	if c.Workload, err = f.buildWorkload(labels); err != nil {
		return nil, err
	}
	c.Interception = model.Interception(f.interception)
	if f.proxyConfig != "" {
		if c.ProxyConfig, err = proxyconfig.Parse(f.proxyConfig, "--proxy-config (PROXY_CONFIG)"); err != nil {
			return nil, terminal.UsageError{Err: err}
		}
	}
	if err := completeFromEnvironment(environ, &c); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("concurrency") {
		c.Concurrency = &f.concurrency
	}
	if cmd.Flags().Changed("drain-time") {
		c.DrainTime = &f.drainTime
	}
	c.LeaveTimeout, c.FullDrain = &f.leaveTimeout, !f.earlyEnd
	// The kubelet reads readiness. A load balancer in front of a gateway reads it as well, and must stop to use it.
	c.StayReady = f.podInfo != "" && c.Type != model.ProxyRouter
	if err := f.intercept.into(cmd, &c); err != nil {
		return nil, err
	}
	c.AccessLog = terminal.Raw(cmd.OutOrStdout())
	c.Log, err = f.logger(cmd, c.Workload)
	return &c, err
}

// buildWorkload describes the workload. Flags take precedence over the Pod, and that over labels of the environment.
func (f *flags) buildWorkload(labels map[string]string) (w workload.Workload, err error) {
	w = f.workload
	if f.pod != "" {
		if _, err = client.ReadYAML("--pod", f.pod); err != nil {
			return w, err
		}
		if w, err = workload.ReadPod(f.pod, f.workload.Name); err != nil {
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

// completeFromEnvironment adds facts from the environment to a workload that is described already.
func completeFromEnvironment(environ []string, c *sidecar.Config) (err error) {
	if err := c.CA.Complete(environ); err != nil {
		return err
	}
	if c.CPULimit, err = sidecar.FindCPULimit(environ); err != nil {
		return err
	}
	c.AppMetrics, err = scrape.FindApps(environ, c.Workload.Annotations)
	return err
}

// overrideWorkload replaces fields from the Pod by flags that are set.
func overrideWorkload(w, flags *workload.Workload) {
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

// logger adds the sidecar's name to each record, since many sidecars may share a terminal.
func (f *flags) logger(cmd *cobra.Command, w workload.Workload) (*slog.Logger, error) {
	log, err := f.logging.Logger(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	return log.With("sidecar", w.Name), nil
}
