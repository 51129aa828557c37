package configure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// kubectlManager is the field manager of 'kubectl apply --server-side'.
const kubectlManager = "kubectl"

// applyOnServer replaces the objects of a change by what the API server would make of them.
func (f *diffFlags) applyOnServer(ctx context.Context, change *diffSide) error {
	access, known := f.plane.Default()
	if !known {
		return terminal.UsageError{Err: errors.New("--server-side needs a cluster: give --kubeconfig")}
	}
	client, err := kube.Connect(access)
	if err != nil {
		return f.plane.Explain(err)
	}
	defer client.Close()
	dry, err := client.NewDryRun(kubectlManager)
	if err != nil {
		return err
	}
	tree := change.trees[0]
	var text bytes.Buffer
	for _, w := range tree.Written() {
		content, err := json.Marshal(w.Object)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(content, &o.Object); err != nil {
			return err
		}
		answer, err := dry.Apply(ctx, o, f.namespace)
		if err != nil {
			return f.refusedDryRun(w, err)
		}
		if content, err = json.Marshal(answer.Object); err != nil {
			return err
		}
		text.WriteString("---\n" + string(content) + "\n")
	}
	made, err := file.AnalyzeAll(f.decoder(), &text, file.Stdin)
	if err != nil {
		return err
	}
	for _, p := range made.Problems {
		if p.Severity == problem.SeverityError {
			return &terminal.UserError{What: "the API server's answer is invalid: " + p.Message, Where: p.Object.String() + ": " + p.Field,
				Next: "check the webhooks that change such objects, or leave --server-side out"}
		}
	}
	origins := map[model.Key]string{}
	for _, o := range tree.Objects {
		origins[o.Metadata().Key] = o.Metadata().Origin
	}
	for _, o := range made.Objects {
		o.Metadata().Origin = origins[o.Metadata().Key]
	}
	change.Objects, change.Templates, change.raw = made.Objects, made.Templates, made.Raw
	return nil
}

func (f *diffFlags) refusedDryRun(w file.Written, err error) error {
	kind, _ := w.Object["kind"].(string)
	e := &terminal.UserError{What: "the API server does not accept " + kind, Where: w.Origin, Err: err, Next: "correct the object, or leave --server-side out"}
	switch {
	case apierrors.IsForbidden(err):
		e.Next = "a dry run needs the rights to create and patch the object: ask for them, or leave --server-side out"
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), "namespaces "):
		e.Next = "create the namespace first, or leave --server-side out"
	case apierrors.ReasonForError(err) == "" && !strings.Contains(err.Error(), "has no kind"):
		return f.plane.Explain(err)
	}
	return e
}
