// Package istiodebug answers the questions that istioctl and Kiali ask istiod: its debug pages, as JSON by HTTP
// (/debug/syncz), and the same by xDS (types istio.io/debug).
//
// Fields have the names of istiod's JSON, of which these programs read a part. Pages about istiod's inside (cachez,
// krtz, push_status) are left out.
//
// pages.go lists the pages. questions.go answers xDS. Each page has its own file: syncz.go, configdump.go, registryz.go,
// configz.go.
package istiodebug
