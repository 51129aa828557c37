package kube

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rawObject is an undecoded custom resource. Each is decoded separately, so that an object of a wrong type affects only
// itself, not its list.
type rawObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	document []byte
}

// UnmarshalJSON decodes the metadata and keeps the document.
func (o *rawObject) UnmarshalJSON(b []byte) error {
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	o.TypeMeta, o.ObjectMeta, o.document = head.TypeMeta, head.ObjectMeta, bytes.Clone(b)
	return nil
}

// GetObjectKind implements runtime.Object.
func (o *rawObject) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// DeepCopyObject implements runtime.Object. The document is never changed.
func (o *rawObject) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// rawList is a list of rawObjects.
type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []rawObject `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]rawObject, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*rawObject)
	}
	return &c
}
