package main

import (
	"bytes"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/help"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/markdown"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// output returns the output of a command line, which must succeed.
func output(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, cli.Stdio{In: strings.NewReader(""), Out: &out, Err: &errs}); code != cli.ExitOK {
		t.Fatalf("%q: exit %d, %s", args, code, errs.String())
	}
	return out.String()
}

// Every topic has a page without dead links. rootsfs help lists the topic, and shells complete its
// name.
func TestTopics(t *testing.T) {
	list := output(t, "help")
	offered := output(t, cobra.ShellCompRequestCmd, "help", "")
	pages, err := filepath.Glob("help/*.md")
	if err != nil || len(pages) != len(help.Topics()) {
		t.Errorf("%d topics, and these pages: %v", len(help.Topics()), pages)
	}
	toPage := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, topic := range help.Topics() {
		page, ok := help.Page(topic.Name)
		if !ok || !strings.HasPrefix(page, "# "+topic.Name+": ") {
			t.Fatalf("%s has no page that begins with its name", topic.Name)
		}
		if len(topic.Summary()) > 64 {
			t.Errorf("%s: the summary has more than 64 bytes: %q", topic.Name, topic.Summary())
		}
		if !strings.Contains(list, "\n  "+topic.Name+" ") || !strings.Contains(offered, topic.Name+"\t") {
			t.Errorf("%s is not listed, or not completed", topic.Name)
		}
		for _, m := range toPage.FindAllStringSubmatch(page, -1) {
			if strings.HasPrefix(m[1], "https:") {
				continue
			}
			if _, err := os.Stat(filepath.Join("help", m[1])); err != nil {
				t.Errorf("%s: %v", topic.Name, err)
			}
		}
		prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(page, "")
		if shown := markdown.Text(prose, 80); strings.ContainsAny(shown, "`\x1b") || strings.Contains(shown, "<!--") || strings.Contains(shown, "](") {
			t.Errorf("%s still shows Markdown: %s", topic.Name, shown)
		}
		if shown := output(t, "help", topic.Name); shown != markdown.Text(page, 80) {
			t.Errorf("help %s does not show the page: %s", topic.Name, shown)
		}
		checkCommands(t, topic.Name, prose)
		for _, m := range regexp.MustCompile(`(?m)^\$ rootsfs (.*)$`).FindAllStringSubmatch(page, -1) {
			line, _, _ := strings.Cut(m[1], "  #")
			args := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(line))
			c, rest, err := tree().Find(args)
			if err != nil || !c.HasParent() || c.ParseFlags(rest) != nil || len(c.Commands()) > 0 && c.Flags().NArg() > 0 {
				t.Errorf("%s: the example is no valid command line: rootsfs %s", topic.Name, line)
			}
		}
	}
	for word, want := range map[string]string{
		"polcy": "policy", "quota": "limits", "claude": "agents, or rootsfs help hosts", "statu": "status", "sandbox": "confinement",
	} {
		var errs bytes.Buffer
		code := run([]string{"help", word}, cli.Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
		if code != cli.ExitUsage || !strings.Contains(errs.String(), "see: rootsfs help "+want) {
			t.Errorf("help %s: exit %d, %s", word, code, errs.String())
		}
	}
}

// checkCommands fails unless every command line in inline code begins with a command. After rootsfs
// help there must be a topic.
func checkCommands(t *testing.T, topic, page string) {
	t.Helper()
	for _, m := range regexp.MustCompile("`rootsfs ([a-z][^`]*)`").FindAllStringSubmatch(page, -1) {
		args := strings.Fields(strings.ReplaceAll(m[1], "\n", " "))
		if args[0] == "help" {
			if _, ok := help.Page(args[1]); !ok {
				t.Errorf("%s: there is no topic %s", topic, args[1])
			}
			continue
		}
		c, rest, err := tree().Find(args)
		if err != nil || !c.HasParent() || len(c.Commands()) > 0 && len(rest) > 0 && rest[0][0] != '-' {
			t.Errorf("%s: there is no command rootsfs %s", topic, m[1])
		}
	}
}

// On terminals with 40, 80 and 100 columns, only code blocks and lines of at most two words are
// wider than the terminal.
func TestTopicsFit(t *testing.T) {
	for _, topic := range help.Topics() {
		page, _ := help.Page(topic.Name)
		code := strings.Join(regexp.MustCompile("(?s)```.*?```").FindAllString(page, -1), "\n")
		for _, width := range []int{40, 80, 100} {
			for line := range strings.Lines(markdown.Text(page, width)) {
				line = strings.TrimRight(line, "\n")
				if utf8.RuneCountInString(line) > width && len(strings.Fields(line)) > 2 && !strings.Contains(code, strings.TrimSpace(line)) {
					t.Errorf("%s: wider than %d: %q", topic.Name, width, line)
				}
			}
		}
	}
}

// R092: the first screen of each command has at most 20 flags, --help --all has all flags, and each
// command is in a group of rootsfs help.
func TestFirstScreen(t *testing.T) {
	flagLine := regexp.MustCompile(`(?m)^  (?:-., |    )--[a-z-]+`)
	large := 0 // commands with more than 20 flags
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		c.InitDefaultHelpFlag()
		args := strings.Fields(c.CommandPath())[1:]
		shown := len(flagLine.FindAllString(output(t, append(slices.Clone(args), "--help")...), -1))
		if shown > 20 {
			t.Errorf("%s --help shows %d flags", c.CommandPath(), shown)
		}
		visible := 0
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				visible++
			}
		})
		if visible > 20 {
			large++
			text := output(t, append(slices.Clone(args), "--help", "--all")...)
			if all := len(flagLine.FindAllString(text, -1)); all <= shown || all != visible {
				t.Errorf("%s --help --all shows %d flags of %d", c.CommandPath(), all, visible)
			}
			_, other, found := strings.Cut(text, "\nOther:\n")
			if n := len(flagLine.FindAllString(other, -1)); !found || n > 3 {
				t.Errorf("%s: %d flags have no group", c.CommandPath(), n)
			}
			alone := append(slices.Clone(args), "--all")
			if c.Name() != "serve" {
				alone = append(alone, "x")
			}
			var errs bytes.Buffer
			if code := run(alone, cli.Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &errs}); code != cli.ExitUsage || !strings.Contains(errs.String(), "--help --all") {
				t.Errorf("%q: exit %d, %s", alone, code, errs.String())
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	grouped, _, _ := strings.Cut(output(t, "help"), "\nTopics,")
	for _, c := range tree().Commands() {
		walk(c)
		if !c.Hidden && !strings.Contains(grouped, "\n  "+c.Name()+" ") {
			t.Errorf("%s is in no group of rootsfs help", c.Name())
		}
	}
	if large < 3 {
		t.Errorf("only %d commands have more than 20 flags", large)
	}
}

// R092: man renders each page of the manual without warnings.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	output(t, "help", "--man", dir)
	pages := cli.ManPages(tree())
	for _, want := range []string{"rootsfs.1", "rootsfs-mount.1", "rootsfs-roots-add.1", "rootsfs-policy.7"} {
		if pages[want] == "" {
			t.Errorf("there is no %s", want)
		}
	}
	var files, some []string
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		file := filepath.Join(dir, "man"+name[len(name)-1:], name)
		if written, err := os.ReadFile(file); err != nil || string(written) != pages[name] {
			t.Errorf("%s differs from the page that ManPages returns: %v", file, err)
		}
		files = append(files, file)
		if name == "rootsfs-mount.1" || name == "rootsfs-policy.7" {
			some = append(some, file)
		}
	}
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed (Debian: man-db)")
	}
	// man starts several processes for each page, and groff, which man runs, a few for all.
	if !lab.Soak() {
		render(t, "groff", append(strings.Fields("-k -Kutf8 -t -mandoc -Tutf8 -ww -P-cbou -rLL=80n"), files...))
		files = some
	}
	render(t, man, append([]string{"--warnings=w", "-l"}, files...))
}

// render runs a command that renders the manual pages rootsfs-mount and rootsfs-policy, and perhaps
// others. The command must warn of nothing.
func render(t *testing.T, name string, args []string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "MANPAGER=cat", "MANWIDTH=80", "LC_ALL=C.UTF-8")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Errorf("%s: %v\n%.2000s", name, err, errs.String())
	}
	if !strings.Contains(out.String(), "which names a root shows") || !strings.Contains(out.String(), "--respect-gitignore") {
		t.Errorf("%s: the rendered pages lack a text of the topic policy, or --respect-gitignore: %.500s", name, out.String())
	}
}
