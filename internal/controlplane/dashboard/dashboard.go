// Package dashboard is a page that shows the debug pages: each change with its stages, proxies that are
// behind or refuse something, and problems. It contains no data of a mesh: its reader needs access to the
// debug pages.
//
// The page's program is TypeScript in src. "make dashboard" makes page/dashboard.js from it, which is part
// of the repository so that Moonsail builds with Go only.
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

// Path is the path of the page.
const Path = "/dashboard"

// Paths are all parts of the page. They contain no data of a mesh.
var Paths = []string{Path, Path + "/style.css", Path + "/dashboard.js"}

// policy lets the page run its own program and call its control plane, and nothing else.
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
