package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/help"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/markdown"
)

// writeMan writes the manual's pages, one for each command and topic, into man1 and man7 of dir.
func writeMan(root *cobra.Command, dir string) error {
	for name, page := range ManPages(root) {
		file := filepath.Join(dir, "man"+name[len(name)-1:], name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ManPages returns the pages of the manual by file name: rootsfs.1, rootsfs-COMMAND.1 and
// rootsfs-TOPIC.7. root is the command rootsfs, with all commands below it.
func ManPages(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		c.InitDefaultHelpFlag()
		pages[strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = manCommand(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, t := range help.Topics() {
		page, _ := help.Page(t.Name)
		pages["rootsfs-"+t.Name+".7"] = markdown.Man(page, "rootsfs-"+t.Name, "7", t.Summary())
	}
	return pages
}

// manCommand returns the page of one command.
func manCommand(c *cobra.Command) string {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var b strings.Builder
	b.WriteString(markdown.Man("", name, "1", c.Short))
	b.WriteString(".SH SYNOPSIS\n.PP\n\\fB" + markdown.Roff(c.UseLine()) + "\\fR\n.SH DESCRIPTION\n")
	for part := range strings.SplitSeq(strings.TrimSpace(c.Long), "\n\n") {
		if strings.Contains(part, "\n  ") { // a list that keeps its lines
			b.WriteString(markdown.Code(strings.Split(part, "\n")))
			continue
		}
		b.WriteString(".PP\n" + markdown.Line(strings.Join(strings.Fields(part), " ")))
	}
	b.WriteString(manCommands(c))
	groups, _ := groupFlags(c, true)
	for i, g := range groups {
		if i == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		if len(groups) > 1 {
			b.WriteString(".SS " + markdown.Roff(g.title) + "\n")
		}
		for _, f := range g.flags {
			name, text := flagText(f)
			b.WriteString(".TP\n\\fB" + markdown.Roff(strings.TrimSpace(name)) + "\\fR\n" + markdown.Line(text))
		}
	}
	if c.HasExample() {
		b.WriteString(".SH EXAMPLES\n" + markdown.Code(strings.Split(c.Example, "\n")))
	}
	return b.String() + manSeeAlso(c)
}

// manCommands lists the commands below c.
func manCommands(c *cobra.Command) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if b.Len() == 0 {
				b.WriteString(".SH COMMANDS\n")
			}
			b.WriteString(".TP\n\\fB" + markdown.Roff(strings.ReplaceAll(sub.CommandPath(), " ", "-")) + "\\fR(1)\n" + markdown.Line(sub.Short))
		}
	}
	return b.String()
}

// manSeeAlso lists related pages.
func manSeeAlso(c *cobra.Command) string {
	var also []string
	if !c.HasParent() {
		for _, t := range help.Topics() {
			also = append(also, fmt.Sprintf("\\fBrootsfs\\-%s\\fR(7)", t.Name))
		}
	} else {
		also = append(also, "\\fB"+markdown.Roff(strings.ReplaceAll(c.Parent().CommandPath(), " ", "-"))+"\\fR(1)")
		command, _, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), "rootsfs "), " ")
		if t := topicFor(command); t != "" {
			also = append(also, "\\fBrootsfs\\-"+t+"\\fR(7)")
		}
	}
	return ".SH SEE ALSO\n.PP\n" + strings.Join(also, ", ") + "\n"
}
