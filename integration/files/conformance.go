package files

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// ErrNode22 means that there is no Node.js 22 for this platform (see Node22).
var ErrNode22 = errors.New("the conformance package needs Node.js 22, which is pinned for linux/amd64 only")

// Scenario is the result of one scenario: the checks that failed, and how many passed.
type Scenario struct {
	Failed []string
	Passed int
}

// stamp matches the time at the end of the name of a scenario's directory of results.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[-\d]+Z$`)

// Conformance runs scenarios of the MCP conformance package. args are its arguments
// without the directory of results. It returns the result of each scenario by name; names
// of server scenarios begin with "server-". Lateness is no failure, because the machine
// may be busy. A client that is early fails. log is the output of the package.
func (p *Peers) Conformance(ctx context.Context, env []string, args ...string) (all map[string]*Scenario, log string, err error) {
	node := p.Node22()
	if node == "" {
		return nil, "", ErrNode22
	}
	dir, err := os.MkdirTemp("", "rootsfs-conformance-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	script := p.Module("@modelcontextprotocol", "conformance", "dist", "index.js")
	cmd := exec.CommandContext(ctx, node, append(append([]string{script}, args...), "--output-dir", dir)...)
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput() // checks.json has the results, so the exit status is not needed
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		return nil, "", err
	}
	all = map[string]*Scenario{}
	for _, f := range files {
		s, err := readChecks(f)
		if err != nil {
			return nil, "", err
		}
		all[stamp.ReplaceAllString(filepath.Base(filepath.Dir(f)), "")] = s
	}
	return all, string(out), nil
}

func readChecks(path string) (*Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []struct {
		ID, Status, ErrorMessage string
		Details                  struct{ VeryLate bool }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	s := &Scenario{}
	for _, c := range list {
		switch {
		case c.Status == "SUCCESS":
			s.Passed++
		case c.Status == "FAILURE" && !c.Details.VeryLate:
			s.Failed = append(s.Failed, c.ID+": "+c.ErrorMessage)
		}
	}
	return s, nil
}
