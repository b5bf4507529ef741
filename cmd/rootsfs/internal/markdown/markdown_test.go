package markdown

import (
	"strings"
	"testing"
)

const page = "# name: what it is about\n" +
	"\n" +
	"A paragraph with `code`, **strong words** and a link to [policy](policy.md), in\n" +
	"two lines, or the\n[key](config.md).\n" +
	"\n" +
	"<!-- generated: x -->\n" +
	"![a picture](a.png)\n" +
	"\n" +
	"## A heading\n" +
	"\n" +
	"- one\n" +
	"- two, which is\n" +
	"  continued\n" +
	"\n" +
	"1. first\n" +
	"\n" +
	"```console\n" +
	"$ rootsfs status   # .dot\n" +
	".dot 'x'\n" +
	"```\n" +
	"\n" +
	"| key | meaning |\n" +
	"|---|---|\n" +
	"| `a.b` | either this\\|that, or a long text that has to be wrapped |\n" +
	"\n" +
	"| one | two | three |\n" +
	"|---|---|---|\n" +
	"| x |  | z |\n"

func TestText(t *testing.T) {
	const want = `Name: what it is about

  A paragraph with code, strong words and a
  link to rootsfs help policy, in two lines,
  or the key (rootsfs help config).

A HEADING

  - one
  - two, which is continued
  1. first

    $ rootsfs status   # .dot
    .dot 'x'

  key  meaning
  a.b  either this|that, or a long text that
       has to be wrapped

  one  two  three
  x         z
`
	if got := Text(page, 46); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A table whose words do not fit beside each other is rendered as a list.
func TestStackedTable(t *testing.T) {
	const table = "| first | second | third | fourth |\n|---|---|---|---|\n" +
		"| `averyveryverylongword` | `anotherveryverylongword` and more | x | x |\n| y |  |  | z |\n"
	const want = "  averyveryverylongword\n    second: anotherveryverylongword\n      and more\n    third; fourth: x\n  y\n    fourth: z\n"
	if got := Text(table, 40); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Text that looks like a request or an escape of roff is printed as text.
func TestMan(t *testing.T) {
	got := Man(page, "rootsfs-name", "7", "what it is about")
	for _, want := range []string{
		".TH ROOTSFS-NAME 7", `rootsfs\-name \- what it is about`, ".SH DESCRIPTION\n.PP\nA paragraph with \\fBcode\\fR",
		`\fBrootsfs\-policy\fR(7)`, `key (\fBrootsfs\-config\fR(7))`, ".SH A HEADING\n", ".IP \\(bu 4\none\n", ".IP 1. 4\nfirst\n",
		"\n\\&.dot \\(aqx\\(aq\n", ".TP\n\\fBa.b\\fR\neither this|that",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if Roff(`\fB`) != `\efB` || Line(".x") != "\\&.x\n" {
		t.Errorf("%q, %q", Roff(`\fB`), Line(".x"))
	}
	const heading = ".SH \\fBSTATUS \\-\\-JSON\\fR OF A COMPANY\\(aqS HOST\n"
	if got := body("## `status --json` of a company's host\n"); got != heading {
		t.Errorf("a heading is %q, want %q", got, heading)
	}
}
