package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// failed is the beginning of the verdict on a step that failed.
const failed = "FAILED"

// row is a kernel with its results.
type row struct {
	kernel
	version string
	results map[string]string
	err     error
}

// levels are the confinement levels, the strongest first.
var levels = []string{"namespaces", "bubblewrap", "landlock"}

// table returns a Markdown table of all rows. Below the table are the results of the suites that
// ran, and the problems.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("mount: mounted, files worked with, unmounted; root / user by fusermount3. revoke: nothing that was\n" +
		"held (file, mapped pages, directory) works afterwards. run: level that `rootsfs run` reaches.\n\n" +
		"| kernel | mount r/u | revoke r/u | run r/u | bubblewrap r/u | landlock r/u | net r/u | doctor r/u | demo r/u | io_uring |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		cells := []string{r.title()}
		if r.results == nil {
			fmt.Fprintf(&b, "| %s | not run: %v |\n", r.title(), r.err)
			continue
		}
		for _, cell := range []func(string) string{
			func(who string) string { return r.short("mount." + who + ".auto") },
			func(who string) string { return r.short("revoke." + who + ".auto") },
			r.level,
			func(who string) string { return r.short("run." + who + ".bubblewrap") },
			func(who string) string { return r.short("run." + who + ".landlock") },
			r.net, r.doctor,
			func(who string) string { return r.short("demo." + who) },
		} {
			cells = append(cells, pair(cell("root"), cell("user")))
		}
		cells = append(cells, r.rings())
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, r := range rows {
		for _, name := range slices.Sorted(maps.Keys(r.results)) {
			if suite, ok := strings.CutPrefix(name, "suite."); ok {
				fmt.Fprintf(&b, "\n%s: tests of %s: %s\n", r.version, suite, r.results[name])
			}
		}
		for _, problem := range r.problems() {
			fmt.Fprintf(&b, "\n%s: problem: %s\n", r.title(), problem)
		}
	}
	return b.String()
}

func (r *row) title() string {
	title := r.version
	if title == "" {
		title = r.name
	}
	title += " (" + r.distribution.name
	if r.remark != "" {
		title += ", " + r.remark
	}
	return title + ")"
}

// short returns the first word of a result without its colon, "-" if there is no result.
func (r *row) short(name string) string {
	verdict, ok := r.results[name]
	if !ok {
		return "-"
	}
	word, _, _ := strings.Cut(strings.TrimSuffix(verdict, ":"), " ")
	return strings.TrimSuffix(word, ":")
}

// pair joins the cells of root and of the user. It returns only one cell if both are the same.
func pair(root, user string) string {
	if root == user {
		return root
	}
	return root + " / " + user
}

// level returns the strongest confinement level that worked when it was demanded, "none" if no
// level worked. If no level was demanded and run worked, level returns the level that doctor names.
// It returns "-" if run was not tried.
func (r *row) level(who string) string {
	if _, ok := r.results["run."+who+".strongest"]; !ok {
		return "-"
	}
	for _, level := range levels {
		if r.short("run."+who+"."+level) == "ok" {
			return level
		}
	}
	if r.short("run."+who+".namespaces") == "-" && r.short("run."+who+".strongest") == "ok" {
		return r.doctorLevel(who) // levels were not demanded one by one
	}
	return "none"
}

// doctorLevel returns the level that doctor names, "none" for none.
func (r *row) doctorLevel(who string) string {
	says := r.results["doctor."+who+".confinement"]
	for _, level := range levels {
		if strings.Contains(says, " by "+level) {
			return level
		}
	}
	return "none"
}

// net returns one word if the three network tests have the same result, else all three.
func (r *row) net(who string) string {
	var words []string
	for _, kind := range []string{"hosts", "whole", "no"} {
		words = append(words, r.short("net."+who+"."+kind))
	}
	if slices.Equal(slices.Compact(slices.Clone(words)), []string{words[0]}) {
		return words[0]
	}
	return fmt.Sprintf("hosts %s, --net %s, without %s", words[0], words[1], words[2])
}

// doctor returns "right" if doctor names the level that run reaches, else "wrong"; "-" if one
// of them was not run.
func (r *row) doctor(who string) string {
	says, ok := r.results["doctor."+who+".confinement"]
	level := r.level(who)
	switch {
	case !ok || level == "-":
		return "-"
	case r.doctorLevel(who) == level && (level != "none" || !strings.HasPrefix(says, "ok ")):
		return "right"
	}
	return "wrong"
}

// rings returns the result for FUSE over io_uring.
func (r *row) rings() string {
	if strings.HasPrefix(r.results["uring"], "none") || r.results["norings"] != "" {
		return "none"
	}
	words := []string{"auto is " + strings.TrimPrefix(r.results["mount.root.auto"], "ok ")}
	for _, part := range []struct{ name, result string }{
		{"root", "mount.root.io_uring"}, {"user", "mount.user.io_uring"}, {"kills", "uring.kills"}, {"revocations", "uring.revocations"},
	} {
		if verdict := r.results[part.result]; verdict != "" {
			words = append(words, part.name+" "+strings.TrimSuffix(verdict, " io_uring"))
		}
	}
	return strings.Join(words, ", ")
}

// problems returns the problems that decide the exit code.
func (r *row) problems() []string {
	var list []string
	if r.err != nil {
		list = append(list, r.err.Error())
	}
	if r.results == nil {
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(r.results)) {
		if strings.HasPrefix(r.results[name], failed) {
			list = append(list, name+" "+r.results[name])
		}
	}
	for _, who := range []string{"root", "user"} {
		if r.doctor(who) == "wrong" {
			list = append(list, fmt.Sprintf("doctor as %s says %q, and run reaches %s", who, r.results["doctor."+who+".confinement"], r.level(who)))
		}
		if r.level(who) != "none" && r.short("run."+who+".strongest") == "none" {
			list = append(list, fmt.Sprintf("run as %s does not start without --level, and does with --level %s", who, r.level(who)))
		}
	}
	mounted, says := r.results["mount.root.auto"], r.results["doctor.root.transport"]
	if mounted != "" && says != "" && strings.HasSuffix(mounted, "io_uring") != strings.Contains(says, "auto uses io_uring") {
		list = append(list, fmt.Sprintf("doctor as root says %q, and a mount reports %q", says, mounted))
	}
	if r.results["end"] != "ok" {
		list = append(list, "the machine did not reach its end")
	}
	return list
}
