package sandbox

import (
	"archive/zip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// recipe describes how a test runs a recipe of `rootsfs help secrets`. The keys of knownRecipes are
// the first lines of the recipes' blocks on that page.
type recipe struct {
	needs  []string
	want   string
	isSlow bool
}

var knownRecipes = map[string]recipe{
	"# curl and wget":         {[]string{"curl", "wget"}, "GET /hello \nGET /hello \n", false},
	"# git":                   {[]string{"git"}, "hello by clone\n", false},
	"# npm":                   {[]string{"node", "npm"}, "hello by require\n", true},
	"# pip":                   {[]string{"pip3"}, "hello by import\n", true},
	"# cargo":                 {[]string{"cargo"}, "dep = \"1.0.0\"    # hello by search\n", false},
	"# go":                    {nil, "hello by go\n", false}, // go is there, because it runs the tests
	"# Node, fetch and https": {[]string{"node"}, "GET /hello \nGET /hello \n", true},
	"# Python, urllib":        {[]string{"python3"}, "GET /hello \n", false},
	"# Python, requests":      {[]string{"python3"}, "GET /hello \n", true},
	"# Python, httpx":         {[]string{"python3", "../lib/python3/dist-packages/httpx"}, "GET /hello \n", true},
	"# Java":                  {[]string{"java", "javac"}, "GET /hello \n", true},
	"# a key in the URL":      {[]string{"curl"}, "GET /hello?key=PLACEHOLDER \n", false},
}

var recipeBlock = regexp.MustCompile("(?ms)^```sh\n(# [^\n]*)\n(.*?)^```$")

// recipes returns the recipes of the help page as programs.
func recipes(t *testing.T) (list []secretProgram) {
	t.Helper()
	page, err := os.ReadFile("../../cmd/rootsfs/help/secrets.md")
	testkit.Must(t, err)
	for i, block := range recipeBlock.FindAllStringSubmatch(string(page), -1) {
		known, ok := knownRecipes[block[1]]
		if !ok {
			t.Errorf("no test knows what the recipe %s prints", block[1])
		}
		script := strings.ReplaceAll(block[2], "api.example.com", "api.example.com:PORT")
		list = append(list, secretProgram{block[1], known.needs, fmt.Sprintf("mkdir recipe%d && cd recipe%[1]d\n%s", i, script), known.want})
	}
	if len(list) != len(knownRecipes) {
		t.Errorf("the page has %d recipes, and a test knows %d", len(list), len(knownRecipes))
	}
	return list
}

// getJava is a Java program that prints the body of the answer from a URL.
const getJava = `
import java.net.URI;
import java.net.http.*;
public class Get {
	public static void main(String[] urls) throws Exception {
		System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(urls[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
	}
}`

// compileGet compiles getJava and returns the class file in base64, or "" without a compiler.
func compileGet(t *testing.T) string {
	t.Helper()
	if missing([]string{"javac"}) != "" {
		return ""
	}
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "Get.java"), []byte(getJava), 0o600))
	if out, err := exec.Command("/usr/bin/javac", "-d", dir, filepath.Join(dir, "Get.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	class, err := os.ReadFile(filepath.Join(dir, "Get.class"))
	testkit.Must(t, err)
	return base64.StdEncoding.EncodeToString(class)
}

// serveModules is a proxy for go that has version v1.0.0 of the module example.com/dep.
func serveModules(w http.ResponseWriter, r *http.Request) {
	switch filepath.Ext(r.URL.Path) {
	case ".info":
		fmt.Fprint(w, `{"Version": "v1.0.0"}`)
	case ".mod":
		fmt.Fprintln(w, "module example.com/dep")
	case ".zip":
		packed := zip.NewWriter(w)
		for name, text := range map[string]string{"go.mod": "module example.com/dep\n", "main.go": "hello by go\n"} {
			if f, err := packed.Create("example.com/dep@v1.0.0/" + name); err == nil {
				_, _ = io.WriteString(f, text)
			}
		}
		_ = packed.Close()
	default:
		http.NotFound(w, r)
	}
}

// serveCrates is a registry for cargo that finds the crate dep.
func serveCrates(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/crates/config.json":
		fmt.Fprintf(w, `{"dl": "https://%s/crates/dl", "api": "https://%[1]s/crates", "auth-required": true}`, r.Host)
	case "/crates/api/v1/crates":
		fmt.Fprint(w, `{"crates": [{"name": "dep", "description": "hello by search", "max_version": "1.0.0"}], "meta": {"total": 1}}`)
	default:
		http.NotFound(w, r)
	}
}
