package configure

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/source/file"
)

// refusedPods reports templates of Pods that injection refuses because of their annotations, and those that Kubernetes refuses with a
// sidecar.
func refusedPods(tree *file.Tree) problem.List {
	if len(tree.Templates) == 0 {
		return nil
	}
	injection := inject.Default()
	if injection.Prepare() != nil {
		return nil // the defaults are valid
	}
	var out problem.List
	tried := map[string]error{} // by the annotations: an injection takes a millisecond
	for _, w := range tree.Templates {
		owner := inject.Owner{Namespace: w.Namespace, Name: w.Name}
		names := injectionAnnotations(w)
		if len(names) > 0 {
			text := w.Labels[kube.LabelInject]
			for _, name := range names {
				text += "\x00" + name + "\x00" + w.Annotations[name]
			}
			err, known := tried[text]
			if !known {
				err = injection.Check(tree.Pods[w.Key], owner)
				tried[text] = err
			}
			if err != nil {
				out = append(out, refusal(w.Key, names, err))
				continue
			}
		}
		if w.Labels[model.LabelTLSMode] != "" {
			out = append(out, unknownFields(w)...)
			out = append(out, tooFewResources(w.Key, injection.CheckResources(tree.Pods[w.Key], owner))...)
		}
	}
	return out
}

// failingCommands reports commands of hooks and probes that sidecars cannot run.
func failingCommands(tree *file.Tree) (out problem.List) {
	for _, w := range tree.Templates {
		pod := tree.Pods[w.Key]
		if pod == nil {
			continue
		}
		at := templateOf(w.Key)
		for _, c := range inject.FailingCommands(&pod.Spec) {
			out = append(out, problem.Problem{Severity: problem.SeverityWarning, Code: code.NotSupported, Object: w.Key, Field: string(at.Join(c.Field)), Message: c.Message()})
		}
	}
	return out
}

// tooFewResources places problems of a template at its object.
func tooFewResources(k model.Key, list problem.List) problem.List {
	for i := range list {
		list[i].Object, list[i].Field = k, string(templateOf(k).Join(list[i].Field))
	}
	return list
}

// injectionAnnotations returns the names of a workload's annotations for injection.
func injectionAnnotations(w *model.Workload) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.Annotations)), func(name string) bool { return !kube.IsInjectionAnnotation(name) })
}

// unknownFields reports fields of a template's own ProxyConfig that sidecars ignore.
func unknownFields(w *model.Workload) (out problem.List) {
	for _, text := range proxyconfig.Unknown(w.Annotations[istio.AnnotationProxyConfig]) {
		at := annotationsOf(w.Key).Key(istio.AnnotationProxyConfig)
		out = append(out, problem.Problem{Severity: problem.SeverityWarning, Code: code.InvalidAnnotation, Object: w.Key, Field: string(at), Message: text + "; it has no effect"})
	}
	return out
}

func annotationsOf(k model.Key) problem.Path { return templateOf(k).Join("metadata.annotations") }

func templateOf(k model.Key) problem.Path {
	if k.Kind == "CronJob" {
		return "spec.jobTemplate.spec.template"
	}
	return "spec.template"
}

// refusal is the problem for an error of injection, which names the annotation.
func refusal(k model.Key, names []string, err error) problem.Problem {
	at, text := annotationsOf(k), strings.TrimPrefix(err.Error(), "annotation ")
	for _, name := range names {
		if rest, ok := strings.CutPrefix(text, name+": "); ok {
			at, text = at.Key(name), rest
		} else if _, rest, ok := strings.Cut(text, "(annotation "+name+"): "); ok { // behind the name of a flag
			at, text = at.Key(name), rest
		}
	}
	return problem.Problem{Severity: problem.SeverityError, Code: code.InvalidAnnotation, Object: k, Field: string(at), Message: "injection refuses the Pods: " + text}
}
