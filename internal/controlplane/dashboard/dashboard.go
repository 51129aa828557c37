// Package dashboard is a page that shows what the debug pages tell: each change with the stages of its way, who has
// it, who is behind or refuses something, what is wrong. It holds nothing of a mesh: whoever reads it has to be let
// into the debug pages to see anything.
//
// The page's program is TypeScript in src; page/dashboard.js is made of it by "make dashboard", and is kept here so
// that Go alone builds Moonsail.
package dashboard

import (
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
)

//go:embed page/index.html page/style.css page/dashboard.js
var files embed.FS

// Path is where the page is.
const Path = "/dashboard"

// Paths are all that the page is made of. They tell nothing of a mesh.
var Paths = []string{Path, Path + "/style.css", Path + "/dashboard.js"}

// policy lets the page run its own program and ask the control plane that it comes from, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves Paths.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "page/index.html"
		if r.URL.Path != Path {
			name = "page/" + path.Base(r.URL.Path)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache") // the next release has another program
		_, _ = w.Write(text)
	})
}
