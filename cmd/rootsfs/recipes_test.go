package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/help"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/guard/names"
)

// recipes returns the code blocks of the topic hosts, by language.
func recipes(t *testing.T) map[string][]string {
	t.Helper()
	section, ok := help.Page("hosts")
	if !ok {
		t.Fatal("there is no topic hosts")
	}
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}
	return blocks
}

// checkCommandLine fails the test unless a command line of rootsfs is valid: the command and each
// of its flags exist, and the flags' values are accepted.
func checkCommandLine(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := tree().Find(args)
	if err != nil || !cmd.HasParent() {
		t.Errorf("%q: no such command: %v", args, err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", args, err)
		return
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	specs, err := cmd.Flags().GetStringArray("root")
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
	for _, spec := range specs {
		if _, err := rootspec.Parse(spec); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The configurations in the topic hosts can be copied: wrap reads each and finds it wrapped,
// and rootsfs accepts every word of its command lines.
func TestRecipes(t *testing.T) {
	blocks := recipes(t)
	formats := map[hostconfig.Format]int{}
	for _, doc := range blocks["json"] {
		c, err := hostconfig.Parse("mcp.json", []byte(doc))
		if err != nil {
			t.Errorf("%v in\n%s", err, doc)
			continue
		}
		formats[c.Format]++
		for _, s := range c.Servers {
			if _, ok := s.Inner(); !ok || s.Err != nil {
				t.Errorf("%v is not wrapped: %v", s, s.Err)
				continue
			}
			checkCommandLine(t, names.List[string](s.Args))
			for _, name := range s.Env {
				if i := slices.Index(s.Args, name); i < 1 || s.Args[i-1] != "--env" {
					t.Errorf("%v: the variable %s has no --env", s, name)
				}
			}
		}
	}
	if formats[hostconfig.VSCode] != 1 || formats[hostconfig.Generic] != 3 {
		t.Errorf("recipes: %v", formats)
	}
	lines := 0
	for _, line := range strings.Split(strings.Join(blocks["sh"], "\n")+"\n"+strings.Join(blocks["ini"], "\n"), "\n") {
		words := strings.Fields(strings.ReplaceAll(line, "%h", "/home/me"))
		i := slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(w, "rootsfs") })
		if i < 0 {
			continue
		}
		lines++
		checkCommandLine(t, words[i+1:])
	}
	if lines != 3 {
		t.Errorf("%d command lines were checked", lines)
	}
}
