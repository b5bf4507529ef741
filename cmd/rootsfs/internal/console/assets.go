package console

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

// The page as it stands in the repository: there is no step between.
//
//go:embed web
var web embed.FS

// types are those of the page's files, by the ending of their names; others are
// not served.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// pages serves the files of the page, which are no secrets.
func pages() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			fail(w, http.StatusMethodNotAllowed, "pages are only read")
			return
		}
		name := path.Clean(r.URL.Path)[1:]
		if name == "" {
			name = "index.html"
		}
		kind := types[path.Ext(name)]
		data, err := fs.ReadFile(web, "web/"+name)
		if kind == "" || err != nil {
			fail(w, http.StatusNotFound, "there is no such page")
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(data) // a browser that went away wants no answer
	})
}
