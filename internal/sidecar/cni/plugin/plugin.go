// Package plugin is the CNI plugin that sets the rules of interception for a Pod. The container runtime runs it after the
// plugins that connect the Pod, with a command in CNI_COMMAND and the configuration on standard input.
//
//	ADD     asks the node agent about the Pod, and sets the rules in its network namespace
//	CHECK   asks again, and checks that the rules are there
//	DEL     does nothing: the rules end with the namespace
//	GC      does nothing, for the same reason
//	STATUS  is always good. Otherwise the node would count as not ready while its agent restarts, and lose its Pods
//
// The result of the plugins before passes through unchanged.
package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	build "github.com/moonsail/moonsail/internal/version"
)

// config is the plugin's entry in the list of plugins, and what the runtime adds to it.
type config struct {
	cni.Entry
	CNIVersion string          `json:"cniVersion"`
	PrevResult json.RawMessage `json:"prevResult"`
}

// Codes of errors, beside those of the CNI specification.
const (
	codeRules   = 100 // the rules could not be set, or are not there
	codeInvalid = 101 // the Pod's annotations are invalid
)

// Limits of an attempt. After that the kubelet starts another one.
const (
	askTimeout    = 15 * time.Second       // for the node agent's answer
	retryInterval = 200 * time.Millisecond // of questions
	rulesTimeout  = 15 * time.Second       // for the rules; less than the agent waits for the result
)

// Main runs the command of the environment, and exits with status 1 if it fails. The error is on standard output, as
// JSON.
func Main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { return add(args, os.Stdout, askTimeout) },
		Check:  check,
		Del:    func(*skel.CmdArgs) error { return nil },
		GC:     func(*skel.CmdArgs) error { return nil },
		Status: func(*skel.CmdArgs) error { return nil },
	}, version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"),
		"CNI plugin "+cni.PluginName+" "+build.Get().String()+": redirects the connections of Pods to their sidecars")
}

// kubernetesArgs are the arguments in CNI_ARGS. Their names are those of container runtimes.
type kubernetesArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString
	K8S_POD_NAME      types.UnmarshallableString
	K8S_POD_UID       types.UnmarshallableString
}

// read decodes the configuration, and the Pod; its name is empty if the runtime does not run it for Kubernetes.
func read(args *skel.CmdArgs) (*config, cni.Pod, error) {
	c := &config{}
	if err := json.Unmarshal(args.StdinData, c); err != nil {
		return nil, cni.Pod{}, types.NewError(types.ErrDecodingFailure, cni.PluginName+": invalid configuration", err.Error())
	}
	if c.Socket == "" {
		c.Socket = cni.Socket
	}
	k := kubernetesArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args.Args, &k); err != nil {
		return nil, cni.Pod{}, types.NewError(types.ErrInvalidEnvironmentVariables, cni.PluginName+": invalid CNI_ARGS", err.Error())
	}
	return c, cni.Pod{Namespace: string(k.K8S_POD_NAMESPACE), Name: string(k.K8S_POD_NAME), UID: string(k.K8S_POD_UID)}, nil
}

// exempt reports whether a Pod starts without asking the node agent.
func (c *config) exempt(pod cni.Pod) bool {
	return pod.Name == "" || pod.Namespace == "" || slices.Contains(c.ExcludeNamespaces, pod.Namespace) ||
		c.AgentPods != "" && strings.HasPrefix(pod.String(), c.AgentPods)
}

// daemonSet names the node agent's DaemonSet.
func (c *config) daemonSet() string {
	return cmp.Or(strings.TrimSuffix(c.AgentPods, "-"), "moonsail-cni-node")
}

// add sets the rules of a Pod that needs them, and prints the result of the plugins before.
func add(args *skel.CmdArgs, out io.Writer, patience time.Duration) error {
	c, pod, err := read(args)
	if err != nil {
		return err
	}
	if !c.exempt(pod) {
		if err := c.redirect(pod, args.Netns, patience); err != nil {
			return err
		}
	}
	result := c.PrevResult
	if len(result) == 0 {
		result = fmt.Appendf(nil, "{\"cniVersion\":%q}", c.CNIVersion)
	}
	_, err = out.Write(append(result, '\n'))
	return err
}

// addresses returns the addresses that earlier plugins gave to the Pod. The list is empty if their result is missing.
func (c *config) addresses() (out []string) {
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if json.Unmarshal(c.PrevResult, &result) != nil {
		return nil
	}
	for _, ip := range result.IPs {
		out = append(out, ip.Address.Addr().String())
	}
	return out
}

// redirect asks about a Pod, and sets its rules. patience bounds the wait for the node agent.
func (c *config) redirect(pod cni.Pod, netns string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	call, err := c.ask(ctx, cni.Question{Pod: pod})
	if err != nil || call == nil {
		return err
	}
	defer call.Close()
	within, stop := context.WithTimeout(context.Background(), rulesTimeout)
	defer stop()
	backend, err := cni.SetRules(within, netns, call.Answer.Settings, c.addresses())
	result := cni.Result{Backend: backend}
	if err != nil {
		result.Problem = err.Error()
	}
	_ = call.Report(result) // for the agent's log and metrics
	if err != nil {
		return types.NewError(codeRules, fmt.Sprintf("%s: Pod %s", cni.PluginName, pod), err.Error())
	}
	return nil
}

// ask asks the node agent until it answers or ctx ends. The call is nil if the Pod needs no rules.
func (c *config) ask(ctx context.Context, q cni.Question) (*cni.Call, error) {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	var why error
	for {
		call, err := cni.Ask(ctx, c.Socket, q)
		if err == nil {
			return decided(call, q.Pod)
		}
		if why == nil || ctx.Err() == nil { // otherwise the error is the end of ctx
			why = err
		}
		select {
		case <-ctx.Done():
			return nil, types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: Pod %s waits for the node agent", cni.PluginName, q.Pod),
				fmt.Sprintf("%v: check that a Pod of DaemonSet %s runs on this node", why, c.daemonSet()))
		case <-tick.C:
		}
	}
}

// decided returns the call if the Pod needs rules.
func decided(call *cni.Call, pod cni.Pod) (*cni.Call, error) {
	a := &call.Answer
	if a.Problem == "" && a.Redirect {
		return call, nil
	}
	call.Close()
	switch {
	case a.Problem == "":
		return nil, nil
	case a.Invalid:
		return nil, types.NewError(codeInvalid, fmt.Sprintf("%s: Pod %s", cni.PluginName, pod), a.Problem)
	}
	return nil, types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: Pod %s", cni.PluginName, pod), a.Problem)
}

// check reports an error if a Pod lacks rules that it needs.
func check(args *skel.CmdArgs) error {
	c, pod, err := read(args)
	if err != nil || c.exempt(pod) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	call, err := c.ask(ctx, cni.Question{Pod: pod, Check: true})
	if err != nil || call == nil {
		return err
	}
	defer call.Close()
	there, err := cni.RulesInForce(ctx, args.Netns)
	switch {
	case err != nil:
		return types.NewError(codeRules, fmt.Sprintf("%s: Pod %s", cni.PluginName, pod), err.Error())
	case !there:
		return types.NewError(codeRules, fmt.Sprintf("%s: Pod %s", cni.PluginName, pod), "its network namespace has no rules of interception: delete the Pod")
	}
	return nil
}
